/**
 * Bundles the files for the image: dist/ and the packages that it imports, without code that is never loaded.
 *
 *   node deploy/image/bundle.mjs DIRECTORY
 *
 * Writes dist/, package.json and licenses.txt to DIRECTORY. snapshot.mjs makes the startup snapshot from
 * dist/chunks/daemon.cjs. For example, the program uses only 2 of the 65 MB of @kubernetes/client-node. Names are kept,
 * so that stack traces and profiles are readable; line numbers are those of the bundle.
 */
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import path from "node:path";
import { rolldown } from "rolldown";
import { programCommit } from "../../dist/cli/version.js";
import { writePage } from "../page.mjs";
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

/**
 * Returns the folder of the package that a module belongs to, from "node_modules/" on. Returns undefined for our own
 * modules.
 */
function packageOf(module) {
  return /^.*\/(node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(module)?.[1];
}

/** Collects the packages' licenses, which must be distributed with them. */
function licensesOf(packages) {
  return packages
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(path.join(root, folder, "package.json"), "utf8"));
      const file = readdirSync(path.join(root, folder)).find((entry) => /^(licen[cs]e|copying)/i.test(entry));
      const text = file === undefined ? "" : `\n${readFileSync(path.join(root, folder, file), "utf8")}`;
      return `${name} ${version}: ${license}\n${text}`;
    })
    .join(`\n${"-".repeat(80)}\n`);
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

await writePage(path.join(target, "dist", "chunks", "page.html"));

const modules = output.flatMap((chunk) => (chunk.type === "chunk" ? chunk.moduleIds : []));
const folders = modules.flatMap((module) => packageOf(module) ?? []);
const packages = [...new Set(folders)].sort();
writeFileSync(path.join(target, "licenses.txt"), licensesOf(packages));

const manifest = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
// The commit that --version prints. JSON omits it if it is undefined.
const gitHead = process.env.REVISION || (await programCommit());
writeFileSync(path.join(target, "package.json"), `${JSON.stringify({ ...manifest, gitHead }, undefined, 2)}\n`);
if (existsSync(path.join(root, "LICENSE"))) cpSync(path.join(root, "LICENSE"), path.join(target, "LICENSE"));
