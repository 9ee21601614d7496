/**
 * Bundles the files for the image: dist/ and the packages that it imports, without code that is never loaded.
 *
 *   node deploy/image/bundle.mjs DIRECTORY
 *
 * Writes dist/, package.json, licenses.txt and sbom.spdx.json to DIRECTORY. snapshot.mjs makes the startup snapshot from
 * dist/chunks/daemon.cjs. For example, the program uses only 2 of the 65 MB of @kubernetes/client-node. Names are kept,
 * so that stack traces and profiles are readable; line numbers are those of the bundle.
 */
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import path from "node:path";
import { rolldown } from "rolldown";
import { programCommit } from "../../dist/cli/version.js";
import { writePage } from "../page.mjs";
import { SEPARATOR, spdxDocument, spdxPackage } from "./notices.mjs";
import { AFTER_START } from "./snapshot.mjs";

const root = path.resolve(import.meta.dirname, "../..");

/** Loaded only if credentials need it (src/objects/kubernetes/plugin-credentials.ts), because it takes 2 MB. */
const LIBRARY = "@kubernetes/client-node";
const LIBRARY_ENTRY = "client-node";

/** Exports only the one class that is used. */
const libraryEntry = {
  name: "library-entry",
  resolveId: (source) => (source === LIBRARY_ENTRY ? path.join(root, "dist", `${LIBRARY_ENTRY}.js`) : undefined),
  load: (id) => (id.endsWith(`/dist/${LIBRARY_ENTRY}.js`) ? `export { KubeConfig } from "${LIBRARY}";` : undefined),
};

/**
 * The modules under src/cli/ that a daemon loads with import(). The others are for commands, which start from files.
 */
const FOR_DAEMONS = /\/cli\/(?:flags\/flag-config|commands\/(?:proxy|serve|cleanup))\.js$/;

/** Adapts the modules to the startup snapshot (src/snapshot.ts), in which import() does not work. */
const forSnapshot = {
  name: "for-snapshot",
  resolveId(source, importer, { kind }) {
    const builtin = source.replace(/^node:/, "");
    if (AFTER_START.includes(builtin)) return `\0builtin:${builtin}`;
    if (kind !== "dynamic-import" || importer === undefined) return undefined;
    if (source === LIBRARY) return "\0library";
    if (isBuiltin(source)) return `\0imported:${builtin}`;
    const target = path.resolve(path.dirname(importer), source);
    return importer.includes("/dist/cli/") && target.includes("/dist/cli/") && !FOR_DAEMONS.test(target)
      ? "\0command"
      : undefined;
  },
  load(id) {
    if (id === "\0command") return 'throw new Error("commands are not in the startup snapshot");';
    const require = `process.getBuiltinModule("node:module").createRequire(__filename)`;
    const [, imported] = /^\0imported:(.*)$/.exec(id) ?? [];
    if (imported !== undefined) return `module.exports = process.getBuiltinModule("${imported}");`;
    if (id === "\0library") return `module.exports = ${require}("../${LIBRARY_ENTRY}.js");`;
    const [, builtin] = /^\0builtin:(.*)$/.exec(id) ?? [];
    if (builtin === undefined) return undefined;
    return `module.exports = new Proxy({}, { get: (_, key) => process.getBuiltinModule("${builtin}")[key] });`;
  },
};

/** Returns the folder of the package that a module belongs to. Returns undefined for our own modules. */
function folderOf(module) {
  // The bundler's own helpers.
  if (module.startsWith("\0rolldown/")) return path.join(root, "node_modules/rolldown");
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(module)?.[0];
}

/** Describes a package, with the licences that must be distributed with it. */
function describe(folder) {
  const { name, version, license } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
  const files = readdirSync(folder).filter((entry) => /^(licen[cs]e|copying|notice)/i.test(entry));
  const texts = files.map((file) => `\n${readFileSync(path.join(folder, file), "utf8")}`);
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  return { name, version, license, purl, entry: `${name} ${version}: ${license}\n${texts.join("")}` };
}

const [target] = process.argv.slice(2);
if (target === undefined) throw new Error("usage: node deploy/image/bundle.mjs DIRECTORY");

const shared = {
  platform: "node",
  onLog: (level, log) => {
    if (level === "warn") throw new Error(log.message);
  },
};
const bundle = await rolldown({
  ...shared,
  input: { main: path.join(root, "dist", "main.js"), [LIBRARY_ENTRY]: LIBRARY_ENTRY },
  plugins: [libraryEntry],
});
const { output } = await bundle.write({
  dir: path.join(target, "dist"),
  format: "esm",
  entryFileNames: "[name].js",
  // At the same depth as our modules in dist/, because those find package.json and the addon relative to themselves.
  chunkFileNames: "chunks/[name]-[hash].js",
  comments: false,
});

const daemon = await rolldown({ ...shared, input: path.join(root, "dist", "snapshot.js"), plugins: [forSnapshot] });
// Not minified, because an uncaught error prints its source line.
const generated = await daemon.generate({ format: "cjs", codeSplitting: false, comments: false });
const [{ code }] = generated.output;
if (/[^.\w]import\(/.test(code)) throw new Error("an import() is left, which a program from a snapshot cannot do");
// Escape these characters: if a text has a single character above U+00FF, V8 stores it with two bytes per character.
const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
writeFileSync(path.join(target, "dist", "chunks", "daemon.cjs"), code.replace(/[^\0-\xff]/g, escaped));

const pageModules = await writePage(path.join(target, "dist", "chunks", "page.html"));

const chunks = [...output, ...generated.output].flatMap((chunk) => (chunk.type === "chunk" ? chunk.moduleIds : []));
const folders = [...chunks, ...pageModules].flatMap((module) => folderOf(module) ?? []);
// The addon is compiled with the headers of this package.
folders.push(path.join(root, "node_modules/node-addon-api"));
const packages = [...new Set(folders)].sort((a, b) => (a < b ? -1 : 1)).map(describe);
writeFileSync(path.join(target, "licenses.txt"), packages.map(({ entry }) => entry).join(SEPARATOR));

const manifest = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
// The commit that --version prints. JSON omits it if it is undefined.
const gitHead = process.env.REVISION || (await programCommit());
const writeJson = (name, content) =>
  writeFileSync(path.join(target, name), `${JSON.stringify(content, undefined, 2)}\n`);
writeJson("package.json", { ...manifest, gitHead });
writeJson("sbom.spdx.json", spdxDocument(manifest, gitHead, packages.map(spdxPackage)));
if (existsSync(path.join(root, "LICENSE"))) cpSync(path.join(root, "LICENSE"), path.join(target, "LICENSE"));
