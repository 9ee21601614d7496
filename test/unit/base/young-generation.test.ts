import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const run = promisify(execFile);
const MODULE = fileURLToPath(new URL("../../../src/base/runtime.ts", import.meta.url));

/**
 * The size of one half of the young generation, in MiB, of a separate process that creates and keeps 60 MB of objects in small steps.
 * Measured right after a collection: before one, V8 lets the program exceed the size, as long as another thread is still at work.
 */
async function sizeAfter(first: string, then: string): Promise<number> {
  const script = `
    import { getHeapSpaceStatistics } from "node:v8";
    import { setUpForFewServices, setUpForManyServices } from ${JSON.stringify(MODULE)};
    ${first}
    const kept = [];
    const work = async (steps) => {
      for (let step = 0; step < steps; step++) {
        for (let i = 0; i < 2_000; i++) kept.push({ i, list: [i, i + 1, i + 2] });
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await work(100);
    ${then}
    await work(200);
    gc({ type: "minor" });
    const { space_used_size: used, space_available_size: available } = getHeapSpaceStatistics().find(
      ({ space_name: name }) => name === "new_space",
    );
    console.log((used + available) / 2 ** 20);
  `;
  const { stdout } = await run(process.execPath, ["--no-warnings", "--expose-gc", "--input-type=module", "-e", script]);
  return Math.round(Number(stdout));
}

describe("the young generation", () => {
  it("keeps growing without a limit", async () => {
    expect(await sizeAfter("", "")).toBeGreaterThanOrEqual(16);
  });

  it("stays unchanged while there are few services", async () => {
    expect(await sizeAfter("setUpForFewServices();", "")).toBe(1);
  });

  it("grows up to its limit once there are many", async () => {
    const size = await sizeAfter("setUpForFewServices();", "setUpForManyServices();");
    expect(size).toBeGreaterThanOrEqual(2);
    // V8 may enlarge it a second time before the program sees the first.
    expect(size).toBeLessThanOrEqual(4);
  });
});
