/** Time that passes only when a test says so. */
import { vi } from "vitest";

/** Fakes what the proxier uses. `vi.useRealTimers()` ends it. */
export function fakeTime(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "performance"] });
}

/** Runs everything that is due within `ms`, and its consequences. */
export async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** Like `pass`, but 50 ms at a time, for work that waits for an answer before it sets the next timer. */
export async function passInSteps(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 50) {
    await vi.advanceTimersByTimeAsync(50);
    for (let i = 0; i < 4; i++) await new Promise((resolve) => setImmediate(resolve));
  }
}
