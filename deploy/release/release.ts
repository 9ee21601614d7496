/**
 * Builds a release, and publishes it with `--push`. docs/releasing.md has the steps.
 *
 *   npm run release -- --help
 */
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  copyFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { spawnSync } from "node:child_process";
import { mustRun } from "../../test/lab/debian.ts";
import { packChart, packManifests } from "./archives.ts";
import {
  buildah,
  buildahCommand,
  buildImage,
  inspectImage,
  NATIVE,
  type Platform,
  PLATFORMS,
  removeBuilt,
  unpinnedBases,
  whyNoBases,
  whyNoBuildah,
  whyNotEmulated,
  withArchive,
  withFiles,
} from "./image.ts";
import { debianComponents, imageComponents, npmComponent, sbom } from "./sbom.ts";
import { hasUnreleased, missingSection, notes, setVersion, wrongVersions } from "./version.ts";

const HELP = `Builds the files of a release in build/release/, and publishes it with --push.

  npm run release -- --set-version X.Y.Z   write the version everywhere, and date the changelog
  npm run release -- --dry-run             build what this machine can, and print what it skips and why
  npm run release                          build everything, and print the commands that publish it
  npm run release -- --push                build everything, and run these commands

Options:
  --registry REGISTRY   where the image is pushed; without it, only the tag is pushed
  --only PART           build only this part, package, image, chart or sbom, and publish nothing (repeatable)
  --packages DIRECTORY  use the results of npm run pack there instead of packing
  --sign KEY            sign SHA256SUMS with this SSH key, with ssh-keygen

An image in build/release/ of the same commit is used again, so copy an image there that another machine has built.`;

const PARTS = ["package", "image", "chart", "sbom"] as const;

const { values: options } = parseArgs({
  options: {
    "dry-run": { type: "boolean", default: false },
    push: { type: "boolean", default: false },
    registry: { type: "string" },
    only: { type: "string", multiple: true },
    packages: { type: "string" },
    sign: { type: "string" },
    "set-version": { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  },
});
const dryRun = options["dry-run"];
const parts = options.only ?? PARTS;

const root = path.resolve(import.meta.dirname, "../..");
const directory = path.join(root, "build", "release");
/** The text of the release page. */
const NOTES = "notes.md";
const inRelease = (name: string): string => path.join(directory, name);

const read = (file: string): string => readFileSync(path.join(root, file), "utf8");
const git = (...args: readonly string[]): string => mustRun("git", args, { cwd: root }).trim();

/** Ends the program with problems that the reader can solve. */
function refuse(problems: readonly string[]): never {
  console.error(problems.map((problem) => `release: ${problem}`).join("\n"));
  process.exit(1);
}

const versionIn = (file: string): string => (JSON.parse(read(file)) as { version: string }).version;
const version = versionIn("package.json");
const tag = `v${version}`;

/** Parts that were not built, with the reasons. */
const skipped: string[] = [];

/** Records a reason against publishing. A run that does not publish continues. */
function skip(what: string, reason: string): void {
  skipped.push(`skipped ${what}: ${reason}`);
}

/** The commit that a tag on the remote names, if there is one. */
function remoteTag(): string | undefined {
  const { status, stdout } = spawnSync("git", ["ls-remote", "--tags", "origin", tag, `${tag}^{}`], {
    cwd: root,
    encoding: "utf8",
  });
  return status === 0 ? stdout.trim().split("\n").at(-1)?.split("\t")[0] || undefined : undefined;
}

/** Refuses what no run accepts, and returns the commit. */
function check(): string {
  const changed = [...mustRun("git", ["status", "--porcelain"], { cwd: root }).matchAll(/^.. (.*)$/gm)];
  const problems = wrongVersions(root, version).map(
    (problem) => `${problem}: run npm run release -- --set-version ${version}`,
  );
  if (changed.length > 0)
    problems.push(`the checkout has changes that are not committed: ${changed.map(([, file]) => file).join(", ")}`);
  const changelog = read("CHANGELOG.md");
  const missing = missingSection(changelog, version);
  if (missing !== undefined) problems.push(missing);
  if (problems.length > 0) refuse(problems);
  if (hasUnreleased(changelog))
    skip(`publishing ${tag}`, "CHANGELOG.md has entries under Unreleased, so this is not the commit of a release");
  for (const image of unpinnedBases())
    skip(
      `publishing ${tag}`,
      `deploy/Dockerfile has the base image ${image} without a digest: run node deploy/image/pin.mjs`,
    );
  const commit = git("rev-parse", "HEAD");
  const tagged = remoteTag();
  if (tagged !== undefined && tagged !== commit)
    skip(`publishing ${tag}`, `origin has this tag at another commit, ${tagged.slice(0, 12)}`);
  return commit;
}

const packageNames = (from: string): readonly string[] =>
  readdirSync(from)
    .filter((name) => /^nft-proxier-nft-.*\.tgz$/.test(name))
    .toSorted();

/** Packs the library and its platforms, or takes the given packages, and checks their versions and commits. */
function makePackages(commit: string): void {
  const given = options.packages;
  if (given === undefined) {
    console.log("release: npm run pack");
    mustRun(process.execPath, ["deploy/package/pack.mjs", directory], { cwd: root });
  } else for (const name of packageNames(given)) copyFileSync(path.join(given, name), inRelease(name));
  // The library has a version of its own.
  const libraryVersion = versionIn("src/nft/package.json");
  for (const name of packageNames(directory)) {
    const manifest = JSON.parse(mustRun("tar", ["-xzOf", inRelease(name), "package/package.json"])) as {
      version: string;
      gitHead: string;
    };
    if (manifest.version !== libraryVersion) refuse([`${name} has version ${manifest.version}, not ${libraryVersion}`]);
    if (manifest.gitHead !== commit)
      skip(
        `publishing ${name}`,
        `it was packed from commit ${manifest.gitHead.slice(0, 12)}, not from ${commit.slice(0, 12)}`,
      );
  }
}

const imageName = (platform: Platform): string => `nft-proxier-${version}-${platform.replace("/", "-")}.oci.tar`;

function isOf(file: string, platform: Platform, commit: string): boolean {
  return withArchive(file, (image) => {
    const { architecture, config } = inspectImage(image);
    return `linux/${architecture}` === platform && config.Labels["org.opencontainers.image.revision"] === commit;
  });
}

/** Writes the image as an OCI archive, unless it is there or cannot be built. Without registries, a dry run uses stand-ins. */
async function makeImage(platform: Platform, commit: string): Promise<void> {
  const what = `the image for ${platform}`;
  const file = inRelease(imageName(platform));
  const noBuildah = whyNoBuildah();
  if (noBuildah !== undefined) return skip(what, noBuildah);
  if (existsSync(file) && isOf(file, platform, commit)) {
    console.log(`release: ${what} is in ${path.relative(root, file)}`);
    return;
  }
  rmSync(file, { force: true });
  const foreign = whyNotEmulated(platform);
  if (foreign !== undefined) return skip(what, foreign);
  const missing = whyNoBases(platform);
  if (missing !== undefined && !(dryRun && platform === NATIVE)) return skip(what, missing);
  const bases = missing === undefined ? "registries" : "stand-ins";
  const clone = mkdtempSync(path.join(tmpdir(), "nft-proxier-release-"));
  try {
    mustRun("git", ["clone", "-q", root, clone]);
    mustRun("git", ["checkout", "-q", commit], { cwd: clone });
    await buildImage({ from: clone, revision: commit, tag: "nft-proxier-release", platform, bases });
  } finally {
    rmSync(clone, { recursive: true });
  }
  // The name says that nobody can use this file for a release.
  const target = missing === undefined ? file : file.replace(".oci.tar", ".stand-in.oci.tar");
  buildah("push", "--quiet", "nft-proxier-release", `oci-archive:${target}:nft-proxier:${version}`);
  removeBuilt();
  if (missing !== undefined)
    skip(`publishing ${what}`, `its base images are stand-ins made from Debian's packages (${missing})`);
}

/** Packs the chart and the manifests. */
function makeChart(commit: string): void {
  const seconds = Number(git("show", "--no-patch", "--format=%ct", commit));
  packChart(root, inRelease(`nft-proxier-${version}.tgz`), seconds);
  packManifests(root, inRelease(`nft-proxier-${version}-manifests.tgz`), seconds);
}

/** Describes the files of the release that exist. */
function makeSbom(): void {
  const components = readdirSync(directory)
    .toSorted()
    .flatMap((name) => {
      if (name.endsWith(".oci.tar") && whyNoBuildah() === undefined) {
        return withArchive(inRelease(name), (image) =>
          withFiles(image, (files) => imageComponents(path.join(files, "opt/nft-proxier/sbom.spdx.json"), name)),
        );
      }
      if (!name.endsWith(".tgz")) return [];
      const unpacked = mkdtempSync(path.join(tmpdir(), "nft-proxier-sbom-"));
      try {
        mustRun("tar", ["-xzf", inRelease(name), "-C", unpacked]);
        const found = globSync("package/{,prebuilds/*/}status.d", { cwd: unpacked }).toSorted();
        const bundled = globSync("package/node_modules/{*,@*/*}/package.json", { cwd: unpacked }).toSorted();
        return [
          ...found.flatMap((status) => debianComponents(path.join(unpacked, status), name)),
          ...bundled.map((manifest) => npmComponent(path.join(unpacked, manifest), name)),
        ];
      } finally {
        rmSync(unpacked, { recursive: true });
      }
    });
  writeFileSync(inRelease(`nft-proxier-${version}.cdx.json`), sbom(version, components));
}

/** Writes the text of the release page. It is no file of the release. */
function writeNotes(): void {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: repository } = process.env;
  const base = repository === undefined ? "" : `${server}/${repository}/blob/${tag}/`;
  writeFileSync(inRelease(NOTES), notes(read("CHANGELOG.md"), version, base));
}

function writeSums(): void {
  const names = readdirSync(directory)
    .filter((name) => name !== NOTES)
    .toSorted();
  const digest = (name: string): string =>
    createHash("sha256")
      .update(readFileSync(inRelease(name)))
      .digest("hex");
  writeFileSync(inRelease("SHA256SUMS"), names.map((name) => `${digest(name)}  ${name}\n`).join(""));
  if (options.sign !== undefined)
    mustRun("ssh-keygen", [
      "-q",
      "-Y",
      "sign",
      "-n",
      "file",
      "-f",
      path.resolve(options.sign),
      inRelease("SHA256SUMS"),
    ]);
}

function printTable(): void {
  const names = readdirSync(directory).toSorted();
  const width = Math.max(...names.map((name) => name.length));
  const rows = names.map(
    (name) => `${name.padEnd(width)}  ${statSync(inRelease(name)).size.toLocaleString("en").padStart(12)}`,
  );
  console.log([`\n${"build/release/".padEnd(width)}         bytes`, ...rows].join("\n"));
  for (const reason of skipped) console.log(reason);
}

/** Returns the commands that publish the release: first the image, then the tag that announces it. */
function publishCommands(commit: string): readonly (readonly string[])[] {
  const commands: (readonly string[])[] = [];
  if (options.registry !== undefined) {
    const list = `nft-proxier-release:${version}`;
    commands.push(buildahCommand("manifest", "create", list));
    for (const platform of PLATFORMS)
      commands.push(buildahCommand("manifest", "add", list, `oci-archive:build/release/${imageName(platform)}`));
    commands.push(
      buildahCommand("manifest", "push", "--all", "--rm", list, `docker://${options.registry}/nft-proxier:${version}`),
    );
  }
  if (remoteTag() === undefined) {
    const { stdout } = spawnSync("git", ["rev-parse", "--verify", "--quiet", `${tag}^{commit}`], {
      cwd: root,
      encoding: "utf8",
    });
    if (stdout.trim() !== commit) commands.push(["git", "tag", "-a", "-m", `nft-proxier ${version}`, tag, commit]);
    commands.push(["git", "push", "origin", `refs/tags/${tag}`]);
  }
  return commands;
}

const shown = (word: string): string => (/^[\w@%+=:,./^-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

function publish(commit: string): void {
  const commands = publishCommands(commit);
  console.log(
    `\n${options.push ? "Publishing" : "To publish, run these commands, or this command again with --push"}:`,
  );
  if (options.registry === undefined) console.log("  # without --registry, the image is not pushed");
  for (const command of commands) {
    console.log(`  ${command.map(shown).join(" ")}`);
    if (!options.push) continue;
    const { status } = spawnSync(command[0], command.slice(1), { cwd: root, stdio: "inherit" });
    if (status !== 0)
      refuse(["this command failed. The commands before it have been run; docs/releasing.md says how to go back"]);
  }
}

async function main(): Promise<void> {
  if (options.help) return console.log(HELP);
  if (options["set-version"] !== undefined) {
    const changed = setVersion(root, options["set-version"], new Date().toISOString().slice(0, 10));
    return console.log(changed.map((file) => `release: wrote ${file}`).join("\n"));
  }
  const wrong = parts.find((part) => !(PARTS as readonly string[]).includes(part));
  if (wrong !== undefined) refuse([`there is no part ${wrong}, only ${PARTS.join(", ")}`]);
  const publishes = !dryRun && options.only === undefined;
  if (options.push && !publishes) refuse(["--push needs all parts, so it excludes --dry-run and --only"]);
  const commit = check();
  if (publishes && skipped.length > 0) refuse([...skipped, "nothing is built, because it could not be published"]);
  mkdirSync(directory, { recursive: true });
  // Only images may come from another machine.
  const images = PLATFORMS.map(imageName);
  for (const name of readdirSync(directory)) if (!images.includes(name)) rmSync(inRelease(name), { recursive: true });
  for (const part of PARTS) if (!parts.includes(part)) skip(`the ${part}`, `--only ${parts.join(" --only ")}`);
  if (parts.includes("package")) makePackages(commit);
  if (parts.includes("image")) {
    if (whyNoBuildah() === undefined) removeBuilt();
    for (const platform of PLATFORMS) await makeImage(platform, commit);
  }
  if (parts.includes("chart")) makeChart(commit);
  if (parts.includes("sbom")) makeSbom();
  writeNotes();
  writeSums();
  printTable();
  if (!publishes) return console.log("\nNothing is published.");
  if (skipped.length > 0) refuse(["incomplete, so nothing is published"]);
  publish(commit);
}

await main();
