/** Requests of the page to the daemon, with errors for people. */

export const AWAY = "the daemon does not answer";

/** Time limit of a request, ms. */
const ANSWER_MS = 30_000;

/** Resolves to undefined if there is no such path. Rejects with the daemon's reason, or if there is no answer in time. */
export async function ask<T>(path: string): Promise<T | undefined> {
  const response = await fetch(path, { signal: AbortSignal.timeout(ANSWER_MS) });
  if (response.status === 404) return undefined;
  if (!response.ok) throw new Error((await response.text()).trimEnd() || `status ${response.status}`);
  return (await response.json()) as T;
}

/** Returns why a request failed. If there is no answer at all, the message of `fetch` does not say so clearly in any browser. */
export function reasonOf(error: unknown): string {
  if (error instanceof TypeError || error instanceof DOMException) return AWAY;
  return error instanceof Error ? error.message : String(error);
}
