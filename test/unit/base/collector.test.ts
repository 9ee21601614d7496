import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const run = promisify(execFile);
const MODULE = fileURLToPath(new URL("../../../src/base/runtime.ts", import.meta.url));

it("no helper thread takes part in later pauses, and V8 knows all the flags", async () => {
  const script = `
    import { setUpCollector } from ${JSON.stringify(MODULE)};
    setUpCollector();
    const kept = [];
    for (let i = 0; i < 500_000; i++) kept.push({ i, list: [i, i + 1] });
  `;
  const flags = ["--no-warnings", "--trace-gc-nvp", "--input-type=module", "-e", script];
  const { stdout, stderr } = await run(process.execPath, flags, { maxBuffer: 1 << 24 });
  expect(stderr).toBe("");
  const pauses = stdout.split("\n").filter((line) => line.includes(" gc=s "));
  expect(pauses.length).toBeGreaterThan(3);
  // Collections before the module was loaded do not count.
  for (const pause of pauses.slice(-3)) expect(pause).toContain("background.scavenge.parallel=0.0");
});
