/** The version of a release: where it stands, and what CHANGELOG.md says about it. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** A file with the version. The version follows each match of the pattern. A file may be missing if it is optional. */
interface Place {
  readonly file: string;
  readonly before: RegExp;
  readonly optional?: true;
}

const VERSION = String.raw`\d+\.\d+\.\d+(?:-[\w.]+)?`;

const PLACES: readonly Place[] = [
  { file: "package.json", before: /^ {2}"version": "/ },
  { file: "package-lock.json", before: /^(?: {2}| {6}"name": "nft-proxier",\n {6})"version": "/ },
  { file: "deploy/Dockerfile", before: /\/nft-proxier:|image\.version="/ },
  { file: "deploy/kubernetes/kustomization.yaml", before: /newTag: / },
  { file: "deploy/chart/Chart.yaml", before: /^(?:version|appVersion): "?/, optional: true },
];

const pattern = ({ before }: Place): RegExp => new RegExp(`(${before.source})(${VERSION})`, "gm");

function textsOf(root: string): readonly (readonly [place: Place, text: string])[] {
  return PLACES.filter(({ file, optional }) => !optional || existsSync(path.join(root, file))).map((place) => [
    place,
    readFileSync(path.join(root, place.file), "utf8"),
  ]);
}

/** Returns the problems of the places that do not have this version. */
export function wrongVersions(root: string, version: string): readonly string[] {
  return textsOf(root).flatMap(([place, text]) => {
    const found = [...text.matchAll(pattern(place))].map((match) => match.at(-1));
    if (found.length === 0) return [`${place.file} has no version`];
    return found
      .filter((other) => other !== version)
      .map((other) => `${place.file} has version ${other}, not ${version}`);
  });
}

const HEADING = /^## (.*)$/m;

/** Returns the sections of CHANGELOG.md in order. */
function sections(text: string): readonly { readonly title: string; readonly body: string }[] {
  const [, ...parts] = text.split(HEADING);
  return Array.from({ length: parts.length / 2 }, (_, i) => ({ title: parts[2 * i], body: parts[2 * i + 1].trim() }));
}

/** Returns why CHANGELOG.md does not describe the version, or undefined if it does. */
export function missingSection(changelog: string, version: string): string | undefined {
  const titles = sections(changelog).map(({ title }) => title);
  const title = titles.find((name) => name.split(" ")[0] === version);
  if (title === undefined) return `CHANGELOG.md has no section "## ${version} (YYYY-MM-DD)"`;
  if (/^\S+ \(\d{4}-\d\d-\d\d\)$/.test(title)) return undefined;
  return `CHANGELOG.md: the section "## ${title}" has no date; write "## ${version} (YYYY-MM-DD)"`;
}

/**
 * Returns the version's section of CHANGELOG.md without its heading, for the release page. Links to files of the repository begin with `base`
 * there, because the page has another address.
 */
export function notes(changelog: string, version: string, base = ""): string {
  const body = sections(changelog).find(({ title }) => title.split(" ")[0] === version)?.body ?? "";
  return `${body.replaceAll(/\]\((?!https?:|#)/g, `](${base}`)}\n`;
}

/** Whether CHANGELOG.md has entries that belong to no version. */
export function hasUnreleased(changelog: string): boolean {
  return sections(changelog).some(({ title, body }) => title === "Unreleased" && body !== "");
}

/** Writes the version everywhere, and gives the section Unreleased its name and date. Returns the changed files. */
export function setVersion(root: string, version: string, date: string): readonly string[] {
  if (!new RegExp(`^${VERSION}$`).test(version)) throw new Error(`not a version: ${version}; for example 1.2.3`);
  const changed: string[] = [];
  const write = (file: string, before: string, after: string): void => {
    if (before === after) return;
    writeFileSync(path.join(root, file), after);
    changed.push(file);
  };
  for (const [place, text] of textsOf(root)) write(place.file, text, text.replaceAll(pattern(place), `$1${version}`));
  const changelog = readFileSync(path.join(root, "CHANGELOG.md"), "utf8");
  write("CHANGELOG.md", changelog, changelog.replace(/^## Unreleased$/m, `## ${version} (${date})`));
  return changed;
}
