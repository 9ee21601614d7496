/** Finds what is in an image, and what accompanies it. Needs dpkg of a Debian that has the same libraries. */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";

/** The parts of an SPDX document that we read. */
interface Spdx {
  readonly packages: readonly { readonly name: string; readonly versionInfo: string }[];
}

/** The entries of licenses.txt, as "name version". */
export const licensed = (text: string): readonly string[] =>
  text.split(/^-{80}\n/m).flatMap((entry) => /^(\S+ \d\S*): /.exec(entry)?.[1] ?? []);

/** Returns the Debian packages of the shared libraries in an image, except the addon. */
function libraryPackages(image: string): readonly string[] {
  const files = readdirSync(image, { recursive: true, encoding: "utf8" }).filter((name) => /\.so(?:\.|$)/.test(name));
  const patterns = files.map((name) => `*/${name.split("/").slice(-2).join("/")}`);
  const owners = execFileSync("dpkg-query", ["--search", ...patterns], { encoding: "utf8" });
  const names = owners.trim().split("\n");
  return [...new Set(names.map((line) => line.split(":", 1)[0]))];
}

/** Returns what the image lacks: descriptions, copyright files, licences that these name, and entries of licenses.txt and the SBOM. */
export function missingNotices(image: string): readonly string[] {
  const read = (file: string): string => readFileSync(path.join(image, file), "utf8");
  const missing = (files: readonly string[]): string[] => files.filter((file) => !existsSync(path.join(image, file)));
  const packages = libraryPackages(image);
  if (packages.length < 5) throw new Error(`too few libraries: ${packages.join(", ")}`);
  const copyrights = packages.map((name) => `usr/share/doc/${name}/copyright`);
  const files = missing([...copyrights, ...packages.map((name) => `var/lib/dpkg/status.d/${name}`)]);
  if (files.length > 0) return files;
  const common = copyrights.flatMap((file) => read(file).match(/(?<=\/)usr\/share\/common-licenses\/[\w.-]*\w/g) ?? []);
  const licences = licensed(read("opt/nft-proxier/licenses.txt"));
  const listed = new Set(
    (JSON.parse(read("opt/nft-proxier/sbom.spdx.json")) as Spdx).packages.map(
      (one) => `${one.name} ${one.versionInfo}`,
    ),
  );
  const withNode = [...packages, "node", "preact"].filter(
    (name) => !licences.some((one) => one.startsWith(`${name} `)),
  );
  return [
    ...missing(common),
    ...withNode.map((name) => `licenses.txt: ${name}`),
    ...licences.filter((entry) => !listed.has(entry)).map((entry) => `sbom.spdx.json: ${entry}`),
  ];
}
