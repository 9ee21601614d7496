import { afterEach, beforeEach, describe } from "vitest";
import type { ConntrackWorld, OpenConntrackWorld } from "../../support/conntrack-world.ts";
import { changes } from "./changes.js";
import { dumps } from "./dumps.js";
import { entries } from "./entries.js";
import { events } from "./events.js";
import { filters } from "./filters.js";
import { prefilters } from "./prefilters.js";

const TOPICS = { entries, changes, filters, dumps, prefilters, events };

/** Requirements on every implementation of `ConntrackTable`. `open` returns an empty one for each test. */
export function describeConntrack(name: string, open: OpenConntrackWorld): void {
  describe(name, () => {
    let world: ConntrackWorld;
    beforeEach(async () => {
      world = await open();
    });
    afterEach(() => world.close());
    for (const [topic, run] of Object.entries(TOPICS)) describe(topic, () => run(() => world));
  });
}
