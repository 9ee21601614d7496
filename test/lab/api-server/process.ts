/**
 * The double (api-server.ts) as a separate program, for a network namespace that the test is not in. It uses one JSON object per line: it
 * first prints `{ url, ca, kubeconfig }`, then answers each call `{ id, call, args }` on stdin with `{ id, result }` or `{ id, error }`.
 * argv[2]: ApiServerOptions as JSON. It ends when its stdin closes.
 */
import { createInterface } from "node:readline";
import type { Fault } from "./faults.ts";
import { ApiServer, type ApiServerOptions, type FaultEffect, type FaultTarget, type KubeJson } from "./api-server.ts";

const server = await ApiServer.start(JSON.parse(process.argv[2] ?? "{}") as ApiServerOptions);

const faults: Fault[] = [];

const CALLS = {
  put: (objects: readonly KubeJson[]) => {
    for (const object of objects) server.put(object);
  },
  delete: (kind: string, name: string) => server.delete(kind, name),
  fail: (target: FaultTarget, effect: FaultEffect) => void faults.push(server.fail(target, effect)),
  /** Ends all faults; requests that already hang stay so. */
  mend: () => {
    for (const fault of faults.splice(0)) fault.remove();
  },
  cut: async (resource: string) => {
    for (const watch of await server.watching(resource)) watch.cut({ midLine: true });
  },
  compact: () => server.compact(),
  /** Accepts these tokens, and no others, from now on. */
  accept: (tokens: readonly string[]) => {
    server.tokens.clear();
    for (const token of tokens) server.tokens.add(token);
  },
  down: () => server.down(),
  up: () => server.up(),
  events: () => server.events,
  requests: () =>
    server.requests.map(({ method, path, query, status }) => ({ method, path, query: query.toString(), status })),
  watching: async (resource: string) => (await server.watching(resource)).length,
} as const;

export type Calls = typeof CALLS;

const say = (message: object): void => void process.stdout.write(`${JSON.stringify(message)}\n`);
say({ url: server.url, ca: server.ca, kubeconfig: server.kubeconfig() });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line) as { id: number; call: keyof Calls; args: never[] };
  try {
    // The caller's types are those of CALLS (api.ts).
    const run: (...args: never[]) => unknown = CALLS[call];
    say({ id, result: (await run(...args)) ?? null });
  } catch (error) {
    say({ id, error: String(error) });
  }
}
await server.stop();
