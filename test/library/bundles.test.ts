/** Programs that bundle the library: a bundle cannot contain the addon. */
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { rolldown } from "rolldown";
import { beforeAll, expect, test } from "vitest";

const ROOT = path.resolve(import.meta.dirname, "../..");
const ADDON = path.join(ROOT, "build/Release/nft_proxier.node");
// Outside the checkout, where a bundle would find its addon.
const directory = path.join("/tmp", `nft-proxier-bundles-${process.pid}`);

const SOURCE = `import { openKernel, Table } from "@nft-proxier/nft";
import { openConntrack } from "@nft-proxier/nft/conntrack";
(async () => {
  console.log("loaded", typeof Table);
  const kernel = await openKernel();
  console.log("port", kernel.portId > 0);
  await kernel.close();
  const conntrack = await openConntrack();
  await conntrack.close();
})().catch((error) => console.log(error.name, error.code, error.message));`;

beforeAll(() => {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(path.join(directory, "node_modules"), { recursive: true });
  symlinkSync(path.join(ROOT, "node_modules/@nft-proxier"), path.join(directory, "node_modules/@nft-proxier"));
  writeFileSync(path.join(directory, "main.mjs"), SOURCE);
  return () => rmSync(directory, { recursive: true, force: true });
});

/**
 * @param define the bundler's replacement for `import.meta.url`, as esbuild does in CommonJS; absent for its own way.
 */
async function bundle(file: string, format: "esm" | "cjs", external: string[] = [], define?: string): Promise<string> {
  const build = await rolldown({
    input: path.join(directory, "main.mjs"),
    platform: "node",
    external,
    ...(define !== undefined && { transform: { define: { "import.meta.url": define } } }),
  });
  const output = path.join(directory, file);
  await build.write({ file: output, format, codeSplitting: false });
  await build.close();
  return output;
}

async function run(file: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const { NFT_PROXIER_ADDON: _, ...rest } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, [file], { env: { ...rest, ...env } });
  return stdout;
}

test.each([
  ["ES modules", "main.mjs.out.mjs", "esm", undefined],
  ["CommonJS", "main.cjs", "cjs", undefined],
  ["CommonJS without import.meta.url", "bare.cjs", "cjs", "undefined"],
] as const)(
  "a bundle of %s loads, says what it needs, and runs with NFT_PROXIER_ADDON",
  async (_, file, format, define) => {
    const output = await bundle(file, format, [], define);
    const failed = await run(output);
    expect(failed).toMatch(/^loaded function\nKernelError addon /);
    expect(failed).toContain("external");
    expect(failed).toContain("NFT_PROXIER_ADDON");
    expect(await run(output, { NFT_PROXIER_ADDON: ADDON })).toBe("loaded function\nport true\n");
  },
);

test("a bundle that has the library as external runs as it is", async () => {
  const output = await bundle("external.mjs", "esm", ["@nft-proxier/nft", "@nft-proxier/nft/conntrack"]);
  expect(readFileSync(output, "utf8")).toContain('from "@nft-proxier/nft"');
  expect(await run(output)).toBe("loaded function\nport true\n");
});
