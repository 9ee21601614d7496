import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const run = promisify(execFile);
const MODULE = fileURLToPath(new URL("../../../src/base/runtime.ts", import.meta.url));

/**
 * The largest size of the young generation, in MiB, of a separate process that creates and keeps 60 MB of objects in small steps. V8 shrinks
 * it again if a program allocates little in a second, for example because it has no core.
 */
async function sizeAfter(first: string, then: string): Promise<number> {
  const script = `
    import { getHeapSpaceStatistics } from "node:v8";
    import { setUpForFewServices, setUpForManyServices } from ${JSON.stringify(MODULE)};
    ${first}
    const kept = [];
    let largest = 0;
    const work = async (steps) => {
      for (let step = 0; step < steps; step++) {
        for (let i = 0; i < 2_000; i++) kept.push({ i, list: [i, i + 1, i + 2] });
        await new Promise((resolve) => setImmediate(resolve));
        const { space_size: size } = getHeapSpaceStatistics().find(({ space_name: name }) => name === "new_space");
        largest = Math.max(largest, size / 2 ** 20);
      }
    };
    await work(100);
    ${then}
    await work(200);
    console.log(largest);
  `;
  const { stdout } = await run(process.execPath, ["--no-warnings", "--input-type=module", "-e", script]);
  return Number(stdout);
}

describe("the young generation", () => {
  it("keeps growing without a limit", async () => {
    expect(await sizeAfter("", "")).toBeGreaterThan(32);
  });

  it("stays unchanged while there are few services", async () => {
    // V8 may enlarge it before the program limits it: usually to 4 MiB. Without that, it would be 64.
    expect(await sizeAfter("setUpForFewServices();", "")).toBeLessThanOrEqual(8);
  });

  it("grows up to its limit once there are many", async () => {
    const size = await sizeAfter("setUpForFewServices();", "setUpForManyServices();");
    expect(size).toBeGreaterThanOrEqual(2);
    // V8 may enlarge it a second time before the program sees the first: usually 4 MiB. Without a limit it would be 64 or more.
    expect(size).toBeLessThanOrEqual(16);
  });
});
