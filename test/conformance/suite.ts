import { afterEach, beforeEach, describe } from "vitest";
import type { Current } from "./cases.js";
import type { KernelWorld, OpenKernelWorld } from "../support/kernel-world.ts";
import { addresses } from "./suite/addresses.js";
import { anonymous } from "./suite/anonymous.js";
import { batches } from "./suite/batches.js";
import { chains } from "./suite/chains.js";
import { elements } from "./suite/elements.js";
import { expressions } from "./suite/expressions.js";
import { intervals } from "./suite/intervals.js";
import { monitors } from "./suite/monitors.js";
import { objects } from "./suite/objects.js";
import { rules } from "./suite/rules.js";
import { sets } from "./suite/sets.js";
import { tables } from "./suite/tables.js";
import { timeouts } from "./suite/timeouts.js";

const TOPICS = {
  tables,
  chains,
  rules,
  sets,
  elements,
  intervals,
  timeouts,
  anonymous,
  expressions,
  batches,
  monitors,
  objects,
  addresses,
};

/**
 * Requirements on every implementation of `Kernel`. `open` returns an empty one for each test. The real kernel also runs the cases that are
 * marked `realOnly`.
 */
export function describeKernel(name: string, open: OpenKernelWorld, isReal: boolean): void {
  describe(name, () => {
    let world: KernelWorld;
    beforeEach(async () => {
      world = await open();
    });
    afterEach(() => world.close());
    const current: Current = Object.assign(() => world, { isReal });
    for (const [topic, run] of Object.entries(TOPICS)) describe(topic, () => run(current));
  });
}
