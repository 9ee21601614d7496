/**
 * What the image runs: dist/ and the packages that it imports as a few files, without what is never loaded.
 *
 *   node deploy/image/bundle.mjs DIRECTORY
 *
 * DIRECTORY gets dist/, package.json, licenses.txt and the one package that is not bundled. Of @kubernetes/client-node alone, 2 of 65 MB
 * are ever reached. Names stay as they are, so that stack traces and profiles can be read; line numbers are the bundle's.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { rolldown } from "rolldown";

const root = path.resolve(import.meta.dirname, "../..");

/** Required by name when a configuration file is first read (src/config/parse.ts): no bundler follows that. */
const NOT_BUNDLED = "yaml";

/** The folder of the package that a module belongs to, from "node_modules/"; undefined: our own. */
function packageOf(module) {
  return /^.*\/(node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(module)?.[1];
}

/** Licences ask to be passed on with what they are for. */
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

const bundle = await rolldown({
  input: path.join(root, "dist", "main.js"),
  platform: "node",
  external: [NOT_BUNDLED],
  onLog: (level, log) => {
    if (level === "warn") throw new Error(log.message);
  },
});
const { output } = await bundle.write({
  dir: path.join(target, "dist"),
  format: "esm",
  entryFileNames: "main.js",
  // As deep as our modules in dist/ are: they find package.json and the addon from where they are.
  chunkFileNames: "chunks/[name]-[hash].js",
  comments: false,
});

mkdirSync(path.join(target, "dist", "page"), { recursive: true });
cpSync(path.join(root, "dist", "page", "page.html"), path.join(target, "dist", "page", "page.html"));

const modules = output.flatMap((chunk) => (chunk.type === "chunk" ? chunk.moduleIds : []));
const folders = modules.flatMap((module) => packageOf(module) ?? []);
const packages = [...new Set([...folders, `node_modules/${NOT_BUNDLED}`])].sort();
writeFileSync(path.join(target, "licenses.txt"), licensesOf(packages));

const source = path.join(root, "node_modules", NOT_BUNDLED);
const copy = path.join(target, "node_modules", NOT_BUNDLED);
mkdirSync(copy, { recursive: true });
for (const name of ["package.json", "LICENSE"]) cpSync(path.join(source, name), path.join(copy, name));
cpSync(path.join(source, "dist"), path.join(copy, "dist"), {
  recursive: true,
  filter: (file) => !/\.(d\.ts|map)$/.test(file),
});
for (const name of ["package.json", "LICENSE"]) {
  if (existsSync(path.join(root, name))) cpSync(path.join(root, name), path.join(target, name));
}
