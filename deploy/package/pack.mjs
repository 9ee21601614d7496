/**
 * Packs the library, `@nft-proxier/nft`, and the addon of each platform: `npm run pack [-- DIRECTORY]`.
 *
 * Builds dist/ and prebuilds/, and copies what the library's entry points need to build/npm/nft/. Then it writes the
 * library, the addons, and the library with all of them in one file into DIRECTORY (default: the working directory). With
 * NFT_PROXIER_PLATFORMS="linux-x64-glibc …", it only builds these platforms. Prints what `npm pack --json` says about
 * the library.
 *
 * The checkout's package.json is for the program. The library's own is src/nft/package.json: its users do not need
 * client-node and the pinned Node.
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");
const prebuilds = path.join(root, "prebuilds");
const library = path.join(root, "build", "npm", "nft");

/** Returns the command's output. */
function run(command, ...args) {
  const { status, error, stdout } = spawnSync(command, args, { cwd: root, stdio: ["ignore", "pipe", 2] });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed${error ? `: ${error.message}` : ""}`);
  return String(stdout);
}

/** Returns the imports of a module: relative paths unchanged, packages by name. */
function importsOf(file) {
  const text = fs.readFileSync(file, "utf8");
  return [...text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*"([\w@./:-]+)"/g)].map(([, name]) => name);
}

/** Returns the files under dist/ that the entry points need, with their types, and the packages that they import. */
function reachable(entries) {
  const files = new Set();
  const packages = new Set();
  const visit = (file) => {
    if (files.has(file)) return;
    files.add(file);
    const types = file.replace(/\.js$/, ".d.ts");
    files.add(types);
    for (const name of [...importsOf(file), ...importsOf(types)]) {
      if (name.startsWith(".")) visit(path.resolve(path.dirname(file), name));
      else if (!name.startsWith("node:")) packages.add(name.split("/", name.startsWith("@") ? 2 : 1).join("/"));
    }
  };
  for (const entry of entries) visit(path.join(root, entry));
  return { files, packages };
}

/** Used to compile the addon if no prebuilt one works. The package contains it, so that it installs without a registry. */
const dependencies = ["node-addon-api"];

const writeManifest = (file, content) => fs.writeFileSync(file, `${JSON.stringify(content, undefined, 2)}\n`);
const readManifest = (file) => JSON.parse(fs.readFileSync(path.join(root, file), "utf8"));

/** Names of the built platforms, such as "linux-x64-glibc". */
const platforms = () => fs.readdirSync(prebuilds).filter((name) => name.startsWith("linux-"));

function publishedManifest(manifest, packages, gitHead) {
  const missing = [...packages].filter((name) => !dependencies.includes(name));
  if (missing.length > 0) throw new Error(`the library imports ${missing.join(", ")}, which it does not depend on`);
  const { dependencies: versions } = readManifest("package.json");
  return {
    ...manifest,
    gitHead,
    scripts: { install: "node deploy/package/install.mjs" },
    dependencies: Object.fromEntries(dependencies.map((name) => [name, versions[name]])),
    bundleDependencies: dependencies,
  };
}

/** Makes the directory of each prebuilt addon a package. npm installs the one whose `os`, `cpu` and `libc` fit. */
function preparePlatforms({ name, version, gitHead, license, engines }) {
  for (const platform of platforms()) {
    const [os, cpu, libc] = platform.split("-");
    const description = `The addon of ${name} for ${os} on ${cpu} with ${libc}`;
    const fields = { name: `${name}-${platform}`, version, gitHead, description, license, engines };
    const fits = { os: [os], cpu: [cpu], libc: [libc], main: "nft_proxier.node" };
    writeManifest(path.join(prebuilds, platform, "package.json"), { ...fields, ...fits });
    fs.copyFileSync(path.join(root, "LICENSE"), path.join(prebuilds, platform, "LICENSE"));
  }
}

/** Copies everything but the addons and the package.json into the library's directory. */
function copyLibrary({ files }, modules) {
  fs.rmSync(library, { recursive: true, force: true });
  const copy = (from, to = from) => fs.cpSync(path.join(root, from), path.join(library, to), { recursive: true });
  for (const file of modules) copy(path.relative(root, file));
  for (const name of files) if (name !== "dist") copy(name);
  for (const name of dependencies) copy(path.join("node_modules", name));
  copy("LICENSE");
  copy("src/nft/CHANGELOG.md", "CHANGELOG.md");
  // Its links lead from src/nft/ to docs/. The package contains the documents, not the sources.
  const text = fs.readFileSync(path.join(root, "src/nft/README.md"), "utf8");
  const links = text.replaceAll("](../../", "](").replace(/^- \[sync\/README\.md\].*\n/m, "");
  fs.writeFileSync(path.join(library, "README.md"), links);
}

const [asked = ".", ...rest] = process.argv.slice(2);
if (asked.startsWith("-") || rest.length > 0) throw new Error("usage: npm run pack [-- DIRECTORY]");
const destination = path.resolve(process.env.INIT_CWD ?? process.cwd(), asked);
const pack = (to, ...what) => run("npm", "pack", "--ignore-scripts", "--json", `--pack-destination=${to}`, ...what);

const wanted = (process.env.NFT_PROXIER_PLATFORMS ?? "").split(" ").filter((name) => name !== "");
process.stderr.write(run("node", "deploy/bootstrap.mjs", "--no-addon", "--", "deploy/package/prebuild.ts", ...wanted));
const manifest = readManifest("src/nft/package.json");
const { files, packages } = reachable(Object.values(manifest.exports).flatMap((entry) => entry.default ?? []));
copyLibrary(manifest, files);
const { programCommit } = await import("../../dist/cli/version.js");
const published = publishedManifest(manifest, packages, await programCommit());
preparePlatforms(published);
fs.mkdirSync(destination, { recursive: true });
pack(destination, ...platforms().map((platform) => `./prebuilds/${platform}`));

const { name, version } = published;
const versions = Object.fromEntries(platforms().map((platform) => [`${name}-${platform}`, version]));
writeManifest(path.join(library, "package.json"), { ...published, optionalDependencies: versions });
process.stdout.write(pack(destination, library));

fs.cpSync(prebuilds, path.join(library, "prebuilds"), { recursive: true });
writeManifest(path.join(library, "package.json"), { ...published, files: [...published.files, "prebuilds"] });
const work = fs.mkdtempSync(path.join(root, "build", "pack-"));
const [{ filename }] = JSON.parse(pack(work, library));
fs.copyFileSync(path.join(work, filename), path.join(destination, filename.replace(/\.tgz$/, "-all-platforms.tgz")));
fs.rmSync(work, { recursive: true });
