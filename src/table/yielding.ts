/** Records handled between two turns of the event loop: well below 20 ms even on a slow core. */
export const CHUNK = 8_192;

/** Lets timers, sockets and signals have a turn. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
