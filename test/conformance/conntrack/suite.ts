import { afterEach, beforeEach, describe } from "vitest";
import type { ConntrackBench, OpenConntrack } from "./bench.js";
import { changes } from "./changes.js";
import { dumps } from "./dumps.js";
import { entries } from "./entries.js";
import { events } from "./events.js";
import { filters } from "./filters.js";
import { screens } from "./screens.js";

const TOPICS = { entries, changes, filters, dumps, screens, events };

/** What every implementation of `ConntrackTable` must do. `open` gives an empty one for each test. */
export function describeConntrack(name: string, open: OpenConntrack): void {
  describe(name, () => {
    let bench: ConntrackBench;
    beforeEach(async () => {
      bench = await open();
    });
    afterEach(() => bench.close());
    for (const [topic, run] of Object.entries(TOPICS)) describe(topic, () => run(() => bench));
  });
}
