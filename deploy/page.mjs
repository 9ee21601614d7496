/**
 * Assembles the status page: src/daemon/page/page.html with its style and script included, so that a browser loads
 * nothing else.
 *
 *   node deploy/page.mjs FILE
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { rolldown } from "rolldown";

const source = path.resolve(import.meta.dirname, "../src/daemon/page");

/** Writes the page to a file, and creates the file's directory. Returns the paths of the modules in it. */
export async function writePage(target) {
  const bundle = await rolldown({
    input: path.join(source, "browser", "page.tsx"),
    tsconfig: path.join(source, "browser", "tsconfig.json"),
    onLog: (level, log) => {
      if (level === "warn") throw new Error(log.message);
    },
  });
  const { output } = await bundle.generate({ format: "iife", minify: true });
  const [{ code, moduleIds }] = output;
  if (/<\/script|<!--/i.test(code)) throw new Error("the page's script contains text that would end its element");
  const style = readFileSync(path.join(source, "page.css"), "utf8");
  const parts = { style: `<style>${style}</style>`, script: `<script>${code}</script>` };
  const document = readFileSync(path.join(source, "page.html"), "utf8").replace(
    /<!-- (style|script) -->/g,
    (_all, name) => parts[name],
  );
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, document);
  return moduleIds;
}

if (import.meta.main) {
  const [target] = process.argv.slice(2);
  if (target === undefined) throw new Error("usage: node deploy/page.mjs FILE");
  await writePage(target);
}
