/** Waiting, for tests that share their machine with other work. */
import { vi } from "vitest";

import { patience } from "./patience.ts";

/** Far longer than any awaited event takes: only a failure waits until the end. */
export const EVENTUALLY_MS = patience(90_000);

/**
 * Calls `check` until it no longer throws, and resolves with its result. Rejects with its last error after the timeout.
 */
export function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: EVENTUALLY_MS, interval: 20 });
}
