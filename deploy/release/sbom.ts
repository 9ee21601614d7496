/** The SBOM of a release in CycloneDX: npm's own list of the program's npm packages, with Node and Debian's packages added. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { mustRun } from "../../test/lab/debian.ts";

interface Component {
  readonly type: "library" | "application";
  readonly name: string;
  readonly version: string;
  readonly "bom-ref": string;
  readonly purl: string;
  /** CPE, with which scanners find Node's vulnerabilities. */
  readonly cpe?: string;
  readonly properties: readonly { readonly name: string; readonly value: string }[];
}

/** Says which file of the release contains the component. */
const within = (file: string): Component["properties"] => [{ name: "nft-proxier:file", value: file }];

/** Reads dpkg's description of a package, as dpkg-query and dpkg-deb print it. */
function debianComponent(status: string, file: string): Component {
  const field = (name: string): string => new RegExp(`^${name}: (\\S+)`, "m").exec(status)?.[1] ?? "";
  const [name, version, arch] = ["Package", "Version", "Architecture"].map(field);
  if (name === "" || version === "") throw new Error(`${file}: not a description of a Debian package: ${status}`);
  const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${arch}&distro=debian-12`;
  return { type: "library", name, version, "bom-ref": `${purl}#${file}`, purl, properties: within(file) };
}

/** The Debian packages whose descriptions are in a directory like /var/lib/dpkg/status.d. */
export function debianComponents(directory: string, file: string): readonly Component[] {
  // Distroless images also have lists of the packages' files there.
  const names = readdirSync(directory).filter((name) => !name.endsWith(".md5sums"));
  return names.toSorted().map((name) => debianComponent(readFileSync(path.join(directory, name), "utf8"), file));
}

export function nodeComponent(version: string, file: string): Component {
  const purl = `pkg:generic/node@${version}`;
  const cpe = `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`;
  return {
    type: "application",
    name: "node",
    version,
    "bom-ref": `${purl}#${file}`,
    purl,
    cpe,
    properties: within(file),
  };
}

/** Returns the document. The npm packages are those of package-lock.json that the program needs. */
export function sbom(root: string, components: readonly Component[]): string {
  const words = [
    "--sbom-format=cyclonedx",
    "--sbom-type=application",
    "--package-lock-only",
    "--omit=dev",
    "--omit=optional",
  ];
  const document = JSON.parse(mustRun("npm", ["sbom", ...words], { cwd: root })) as {
    components: unknown[];
    metadata: { component: { name: string } };
  };
  // npm writes the name of the directory.
  document.metadata.component.name = "nft-proxier";
  // A file can contain the same package twice: for glibc and for musl.
  document.components.push(...new Map(components.map((component) => [component["bom-ref"], component])).values());
  return `${JSON.stringify(document, undefined, 2)}\n`;
}
