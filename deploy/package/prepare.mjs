/**
 * `npm pack` runs this before and after, because the package contains only the library, and the addons have packages of
 * their own, one per platform.
 *
 * - `node deploy/package/prepare.mjs` builds dist/ and prebuilds/, and writes the published package.json and README.md. With
 *   NFT_PROXIER_PLATFORMS="linux-x64-glibc …", it only builds these platforms.
 * - `node deploy/package/prepare.mjs --after` packs the platforms, and the library with all of them in one file. Then it
 *   restores the checkout's own files.
 *
 * The checkout's package.json and README.md are for the program. The library's users do not need its client-node and pinned
 * Node, and read the library's front page.
 * dist/.npmignore excludes everything that the entry points do not import.
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");
const manifestFile = path.join(root, "package.json");
const saved = (name) => path.join(root, "build", `${name}.checkout`);
const prebuilds = path.join(root, "prebuilds");

function run(command, ...args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ["ignore", 2, 2] });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed${error ? `: ${error.message}` : ""}`);
}

/** Files that are not the checkout's own in the package. */
const REPLACED = ["package.json", "README.md"];

function save() {
  fs.mkdirSync(path.join(root, "build"), { recursive: true });
  for (const name of REPLACED) fs.copyFileSync(path.join(root, name), saved(name));
}

/** Restores the checkout's files, also after an interrupted run. */
function restore() {
  for (const name of REPLACED) if (fs.existsSync(saved(name))) fs.renameSync(saved(name), path.join(root, name));
}

/** The library's front page, with its links as they lead from the root. The package contains the documents, not the sources. */
function writeFrontPage() {
  const text = fs.readFileSync(path.join(root, "src/nft/README.md"), "utf8");
  const links = text.replaceAll("](../../", "](").replace(/^- \[sync\/README\.md\].*\n/m, "");
  fs.writeFileSync(path.join(root, "README.md"), links);
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

function writeIgnoreFile(files) {
  const dist = path.join(root, "dist");
  const kept = new Set([...files].map((file) => path.relative(dist, file)));
  const others = fs
    .readdirSync(dist, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(dist, path.join(entry.parentPath, entry.name)))
    .filter((file) => !kept.has(file));
  fs.writeFileSync(path.join(dist, ".npmignore"), others.map((file) => `/${file}\n`).join(""));
}

/** Used to compile the addon if no prebuilt one works. The package contains it, so that it installs without a registry. */
const dependencies = ["node-addon-api"];

const writeManifest = (file, content) => fs.writeFileSync(file, `${JSON.stringify(content, undefined, 2)}\n`);
const readManifest = () => JSON.parse(fs.readFileSync(manifestFile, "utf8"));

/** Names of the built platforms, such as "linux-x64-glibc". */
const platforms = () => fs.readdirSync(prebuilds).filter((name) => name.startsWith("linux-"));

function publishedManifest(manifest, packages, gitHead) {
  const missing = [...packages].filter((name) => !dependencies.includes(name));
  if (missing.length > 0) throw new Error(`the library imports ${missing.join(", ")}, which it does not depend on`);
  const { name, version, license, type, gypfile, engines, exports, files } = manifest;
  return {
    name,
    version,
    gitHead,
    description: "nf_tables tables and connection tracking, declared and kept: netlink, no nft command",
    keywords: ["nftables", "nf_tables", "netfilter", "conntrack", "firewall", "netlink"],
    license,
    type,
    gypfile,
    os: ["linux"],
    engines,
    exports,
    files,
    scripts: { install: "node deploy/package/install.mjs" },
    dependencies: Object.fromEntries(dependencies.map((dependency) => [dependency, manifest.dependencies[dependency]])),
    bundleDependencies: dependencies,
    optionalDependencies: Object.fromEntries(platforms().map((platform) => [`@${name}/${platform}`, version])),
  };
}

/** Makes the directory of each prebuilt addon a package. npm installs the one whose `os`, `cpu` and `libc` fit. */
function preparePlatforms({ name, version, gitHead, license, engines }) {
  for (const platform of platforms()) {
    const [os, cpu, libc] = platform.split("-");
    const description = `The addon of ${name} for ${os} on ${cpu} with ${libc}`;
    const fields = { name: `@${name}/${platform}`, version, gitHead, description, license, engines };
    const fits = { os: [os], cpu: [cpu], libc: [libc], main: "nft_proxier.node" };
    writeManifest(path.join(prebuilds, platform, "package.json"), { ...fields, ...fits });
    fs.copyFileSync(path.join(root, "LICENSE"), path.join(prebuilds, platform, "LICENSE"));
  }
}

/** Packs everything but the library's own file into the same directory. */
function packOthers() {
  const { npm_config_pack_destination: asked = ".", INIT_CWD: cwd = root } = process.env;
  const destination = path.resolve(cwd, asked);
  const pack = (to, ...what) => run("npm", "pack", "--ignore-scripts", "--silent", `--pack-destination=${to}`, ...what);
  pack(destination, ...platforms().map((platform) => `./prebuilds/${platform}`));
  const { optionalDependencies: _, ...manifest } = readManifest();
  writeManifest(manifestFile, {
    ...manifest,
    files: [...manifest.files, ...platforms().map((platform) => `prebuilds/${platform}`)],
  });
  const work = fs.mkdtempSync(path.join(root, "build", "pack-"));
  pack(work, ".");
  const name = `${manifest.name}-${manifest.version}`;
  fs.copyFileSync(path.join(work, `${name}.tgz`), path.join(destination, `${name}-all-platforms.tgz`));
  fs.rmSync(work, { recursive: true });
}

if (process.argv.includes("--after")) {
  if (process.env.npm_command === "pack" && process.env.npm_config_dry_run === undefined) packOthers();
  restore();
} else {
  restore();
  const manifest = readManifest();
  const asked = (process.env.NFT_PROXIER_PLATFORMS ?? "").split(" ").filter((name) => name !== "");
  run("node", "deploy/bootstrap.mjs", "--no-addon", "--", "deploy/package/prebuild.ts", ...asked);
  const entries = Object.values(manifest.exports).flatMap((entry) => entry.default ?? []);
  const { files, packages } = reachable(entries);
  writeIgnoreFile(files);
  const { programCommit } = await import("../../dist/cli/version.js");
  const published = publishedManifest(manifest, packages, await programCommit());
  preparePlatforms(published);
  save();
  writeManifest(manifestFile, published);
  writeFrontPage();
}
