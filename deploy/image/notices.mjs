/**
 * The notices of everything that the image contains: the SBOM, licences, and what accompanies Debian's libraries.
 *
 *   node deploy/image/notices.mjs IMAGE PROGRAM...
 *
 * IMAGE is the image's root, with the output of bundle.mjs in opt/nft-proxier. Copies the shared libraries that the programs load. For each
 * of their packages, it copies the description that vulnerability scanners read, and the copyright file with the licences that it names.
 * Adds Node and these packages to sbom.spdx.json and licenses.txt.
 */
import { execFileSync } from "node:child_process";
import { appendFileSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** Between two entries of licenses.txt. */
export const SEPARATOR = `\n${"-".repeat(80)}\n`;

const ROOT = "SPDXRef-nft-proxier";

/** A package in SPDX 2.3. The references are its purl and, if it has one, its CPE. */
export function spdxPackage({ name, version, license = "NOASSERTION", purl, cpe }) {
  const references = [
    { referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: purl },
    ...(cpe === undefined
      ? []
      : [{ referenceCategory: "SECURITY", referenceType: "cpe23Type", referenceLocator: cpe }]),
  ];
  return {
    name,
    SPDXID: `SPDXRef-${purl.replace(/^pkg:|[?].*$/g, "").replace(/[^\w.-]+|_/g, "-")}`,
    versionInfo: version,
    downloadLocation: "NOASSERTION",
    filesAnalyzed: false,
    licenseDeclared: license,
    externalRefs: references,
  };
}

const contains = ({ SPDXID }) => ({
  spdxElementId: ROOT,
  relatedSpdxElement: SPDXID,
  relationshipType: "CONTAINS",
});

/** The SBOM of the program with these packages. SOURCE_DATE_EPOCH makes it the same in each build. */
export function spdxDocument({ name, version, license }, revision, packages) {
  const seconds = process.env.SOURCE_DATE_EPOCH || Date.now() / 1000;
  const root = { ...spdxPackage({ name, version, license, purl: `pkg:npm/${name}@${version}` }), SPDXID: ROOT };
  return {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: `${name}@${version}`,
    documentNamespace: `http://spdx.org/spdxdocs/${name}-${version}-${revision ?? "unknown"}`,
    creationInfo: {
      created: new Date(Math.floor(seconds) * 1000).toISOString().replace(".000", ""),
      creators: ["Tool: nft-proxier-deploy-image"],
    },
    documentDescribes: [ROOT],
    packages: [root, ...packages],
    relationships: packages.map(contains),
  };
}

const run = (command, ...args) => execFileSync(command, args, { encoding: "utf8" });

/** Returns the paths of the libraries that the dynamic linker loads for the programs. */
function librariesOf(programs) {
  const output = run("ldd", ...programs);
  if (output.includes("not found")) throw new Error(`a library is missing:\n${output}`);
  return [...new Set(Array.from(output.matchAll(/^\s+(?:\S+ => )?(\/\S+) \(0x/gm), ([, file]) => file))];
}

/** Returns the name of the package that owns a library. dpkg may know it in /usr/lib if it is found in /lib, and vice versa. */
function ownerOf(library) {
  const [line] = run("dpkg-query", "--search", `*/${library.split("/").slice(-2).join("/")}`).split("\n");
  return line.split(":", 1)[0];
}

function addNotices(image, programs) {
  const directory = path.join(image, "opt/nft-proxier");
  const copy = (file) => {
    mkdirSync(path.dirname(path.join(image, file)), { recursive: true });
    copyFileSync(file, path.join(image, file));
  };
  const libraries = librariesOf(programs);
  for (const file of libraries) copy(file);

  const status = path.join(image, "var/lib/dpkg/status.d");
  mkdirSync(status, { recursive: true });
  const version = process.version.slice(1);
  const node = spdxPackage({
    name: "node",
    version,
    purl: `pkg:generic/node@${version}`,
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
  });
  const nodeLicense = readFileSync(path.resolve(process.execPath, "../../LICENSE"), "utf8");
  const added = [node];
  const entries = [`node ${version}: with the licences of what it contains\n\n${nodeLicense}`];
  for (const name of [...new Set(libraries.map(ownerOf))].sort((a, b) => (a < b ? -1 : 1))) {
    const description = run("dpkg-query", "--status", name);
    writeFileSync(path.join(status, name), description);
    const [number, architecture] = ["Version", "Architecture"].map(
      (field) => new RegExp(`^${field}: (\\S+)`, "m").exec(description)[1],
    );
    const [urlName, urlVersion] = [name, number].map(encodeURIComponent);
    const purl = `pkg:deb/debian/${urlName}@${urlVersion}?arch=${architecture}&distro=debian-12`;
    added.push(spdxPackage({ name, version: number, purl }));
    const copyright = `/usr/share/doc/${name}/copyright`;
    copy(copyright);
    for (const file of readFileSync(copyright, "utf8").match(/\/usr\/share\/common-licenses\/[\w.-]*\w/g) ?? [])
      copy(file);
    entries.push(`${name} ${number}: ${copyright}\n`);
  }
  appendFileSync(path.join(directory, "licenses.txt"), SEPARATOR + entries.join(SEPARATOR));
  const file = path.join(directory, "sbom.spdx.json");
  const document = JSON.parse(readFileSync(file, "utf8"));
  document.packages.push(...added);
  document.relationships.push(...added.map(contains));
  writeFileSync(file, `${JSON.stringify(document, undefined, 2)}\n`);
}

if (import.meta.main) {
  const [target, ...programs] = process.argv.slice(2);
  if (programs.length === 0) throw new Error("usage: node deploy/image/notices.mjs IMAGE PROGRAM...");
  addNotices(target, programs);
}
