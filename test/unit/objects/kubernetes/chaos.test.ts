/** Random changes with random failures: in the end we know the server's objects, and never lost an existing one. */
import { afterEach, expect, test } from "vitest";
import { ApiServer, type Fault, type FaultEffect } from "../../../lab/api-server/api-server.ts";
import { eventually } from "../../../lab/eventually.ts";
import { listen, type Listening, NODE, node, service, slice } from "./support.ts";
import { someOf } from "../../../lab/length.ts";
import { Dice } from "../../../support/dice.ts";

const STEPS = 250;
const EFFECTS: readonly FaultEffect[] = [
  { status: 410 },
  { status: 429, headers: { "Retry-After": "0" } },
  { status: 500 },
  { status: 503, body: "<html></html>" },
  { reset: true },
  { cutAfter: 900 },
  { pace: { bytes: 300, everyMs: 0 } },
];

let api: ApiServer;
let following: Listening;

afterEach(async () => {
  await following.stop();
  await api.stop();
});

test.each(someOf([1, 2, 3, 4, 5, 6], 3))("random faults, seed %i", async (seed) => {
  const dice = new Dice(seed);
  const pick = (below: number) => dice.below(below);
  api = await ApiServer.start({ bookmarkEveryMs: 30 });
  api.put(node(NODE));
  /** Objects that were deleted at some time: only these may be removed. */
  const deleted = new Set<string>();
  const present = new Map<string, string>();
  const put = (name: string) => {
    const ip = `10.96.0.${1 + pick(250)}`;
    const isSlice = name.startsWith("EndpointSlice");
    const key = name.slice(name.indexOf(" ") + 1);
    api.put(isSlice ? slice(key, "web", [ip]) : service(key, { clusterIP: ip, clusterIPs: [ip] }));
    present.set(name, ip);
  };
  const remove = (name: string) => {
    if (!present.delete(name)) return;
    deleted.add(name);
    api.delete(name.slice(0, name.indexOf(" ")), name.slice(name.indexOf(" ") + 1));
  };
  const names = Array.from({ length: 60 }, (_, i) => `${i % 2 === 0 ? "Service" : "EndpointSlice"} a/o-${i}`);
  for (const name of names) if (pick(2) === 0) put(name);
  following = listen(api, { timing: { minBackoffMs: 2, maxBackoffMs: 20, resetAfterMs: 20, watchIdleMs: 400 } });
  const { sink, started } = following;
  await started;

  const faults: Fault[] = [];
  const mischief: readonly (() => void | Promise<void>)[] = [
    () => api.watches()[pick(4)]?.cut({ midLine: pick(2) === 0 }),
    () => api.watches()[pick(4)]?.end(),
    () => api.watches()[pick(4)]?.error([410, 500, 504][pick(3)]),
    () => api.watches()[pick(4)]?.stall(),
    () => api.compact(),
    () => api.advance(pick(20)),
    () => void faults.push(api.fail({ times: 1 + pick(3), after: pick(3) }, EFFECTS[pick(EFFECTS.length)])),
    async () => {
      await api.down();
      await new Promise((resolve) => setTimeout(resolve, pick(20)));
      await api.up();
    },
  ];
  for (let step = 0; step < STEPS; step++) {
    for (let changes = pick(4); changes > 0; changes--) {
      const name = names[pick(names.length)];
      if (pick(3) === 0) remove(name);
      else put(name);
    }
    if (pick(4) === 0) await mischief[pick(mischief.length)]();
    if (pick(3) === 0) await new Promise((resolve) => setTimeout(resolve, pick(8)));
  }
  for (const fault of faults) fault.remove();

  const known = () => {
    const found = new Map<string, string | undefined>();
    for (const [key, object] of sink.objects) {
      if (object.kind === "EndpointSlice") found.set(key, object.record?.endpoints.address(0));
      if (object.kind === "Service") found.set(key, object.record?.ip?.clusterIP);
    }
    return found;
  };
  await eventually(() => expect(known()).toEqual(present));
  const removed = sink.calls.filter((call) => call.startsWith("- ")).map((call) => call.slice(2));
  expect(removed.filter((name) => !deleted.has(name))).toEqual([]);
  expect(sink.calls.filter((call) => call === "synced")).toHaveLength(1);
  expect(sink.names("Node")).toHaveLength(1);
});
