/** Waiting in tests that share their machine with others. */
import { vi } from "vitest";

import { patience } from "./patience.ts";

/** Far longer than anything takes that is waited for: only a failure waits to the end. */
export const EVENTUALLY_MS = patience(30_000);

/** Calls `check` until it does not throw any more; rejects with its last error, in the end. Resolves with its result. */
export function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: EVENTUALLY_MS, interval: 20 });
}
