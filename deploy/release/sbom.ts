/** The SBOM of a release in CycloneDX: the packages in each of its files. */
import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";

interface Component {
  readonly type: "library" | "application";
  readonly name: string;
  readonly version: string;
  readonly "bom-ref": string;
  readonly purl: string;
  /** CPE, with which scanners find Node's vulnerabilities. */
  readonly cpe?: string;
  readonly licenses?: readonly { readonly expression: string }[];
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

/** The parts of deploy/image/notices.mjs' document that the release needs. */
interface Spdx {
  readonly packages: readonly {
    readonly name: string;
    readonly versionInfo: string;
    readonly licenseDeclared: string;
    readonly externalRefs: readonly { readonly referenceType: string; readonly referenceLocator: string }[];
  }[];
}

/** The packages in an image, without the program itself. */
export function imageComponents(spdxFile: string, file: string): readonly Component[] {
  const [, ...packages] = (JSON.parse(readFileSync(spdxFile, "utf8")) as Spdx).packages;
  return packages.map(({ name, versionInfo, licenseDeclared, externalRefs }) => {
    const reference = (type: string): string | undefined =>
      externalRefs.find(({ referenceType }) => referenceType === type)?.referenceLocator;
    const cpe = reference("cpe23Type");
    const purl = reference("purl") ?? "";
    return {
      type: name === "node" ? "application" : "library",
      name,
      version: versionInfo,
      "bom-ref": `${purl}#${file}`,
      purl,
      ...(cpe === undefined ? {} : { cpe }),
      ...(licenseDeclared === "NOASSERTION" ? {} : { licenses: [{ expression: licenseDeclared }] }),
      properties: within(file),
    };
  });
}

/** An npm package that a file of the release bundles. */
export function npmComponent(manifest: string, file: string): Component {
  const { name, version, license } = JSON.parse(readFileSync(manifest, "utf8")) as Record<string, string>;
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const licenses = [{ expression: license }];
  return { type: "library", name, version, "bom-ref": `${purl}#${file}`, purl, licenses, properties: within(file) };
}

/** Returns the document. */
export function sbom(version: string, components: readonly Component[]): string {
  const purl = `pkg:npm/nft-proxier@${version}`;
  const document = {
    $schema: "http://cyclonedx.org/schema/bom-1.5.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    serialNumber: `urn:uuid:${randomUUID()}`,
    version: 1,
    metadata: {
      timestamp: new Date().toISOString(),
      component: { type: "application", name: "nft-proxier", version, "bom-ref": purl, purl },
    },
    // A file can contain the same package twice: for glibc and for musl.
    components: [...new Map(components.map((component) => [component["bom-ref"], component])).values()],
  };
  return `${JSON.stringify(document, undefined, 2)}\n`;
}
