import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const SOURCE = join(import.meta.dirname, "../../../src");

/** Returns the packages that a file's static imports load, including the imports of its own modules. */
async function packagesOf(file: string, seen = new Set<string>()): Promise<Set<string>> {
  const packages = new Set<string>();
  if (seen.has(file)) return packages;
  seen.add(file);
  const text = await readFile(file, "utf8");
  for (const [statement, from = ""] of text.matchAll(/^(?:import|export)\s[^;]*?from "([^"]+)";/gm)) {
    if (/^(?:import|export) type\s/.test(statement) || from.startsWith("node:")) continue;
    if (from.startsWith(".")) {
      const found = await packagesOf(join(dirname(file), from.replace(/\.js$/, ".ts")), seen);
      for (const name of found) packages.add(name);
    } else packages.add(from);
  }
  return packages;
}

describe("help and version", () => {
  it.each(["main.ts", "cli/commands/program.ts"])("%s loads no package", async (file) => {
    expect([...(await packagesOf(join(SOURCE, file)))]).toEqual([]);
  });

  it("help and version load nothing of the service rooms except the names of counted things", async () => {
    const files = new Set<string>();
    await packagesOf(join(SOURCE, "cli/commands/program.ts"), files);
    const found = [...files]
      .map((file) => relative(SOURCE, file))
      .filter((file) => /^(model|ruleset|table)\//.test(file));
    expect(found).toEqual(["ruleset/service-counters.ts"]);
  });
});

describe("the daemon", () => {
  it("loads neither fetch nor HTTP/2, which importing node:http would load", async () => {
    const modules = ["daemon/daemon.js", "daemon/cluster.js"].map((name) => join(SOURCE, "../dist", name));
    const imports = modules.map((file) => `await import(${JSON.stringify(pathToFileURL(file).href)});`).join("\n");
    const script = `${imports}\nconsole.log(process.moduleLoadList.join("\\n"));`;
    const run = promisify(execFile);
    const { stdout } = await run(process.execPath, ["--input-type=module", "-e", script], { maxBuffer: 1 << 20 });
    const loaded = stdout.split("\n").map((line) => line.replace(/^\w+ /, ""));
    expect(loaded).toContain("http");
    expect(loaded.filter((name) => /undici|http2/.test(name))).toEqual([]);
  });
});
