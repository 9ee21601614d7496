/** Seeded nonsense for the addon: almost valid operations, and almost valid netlink bytes. */
import { DATA_VERDICT, SetFlag } from "../../src/nft/kernel/constants.js";
import type { Op, Verdict } from "../../src/nft/kernel/kernel.js";
import { addresses, addSet, addTable, elements, ip, manyAddresses } from "./lab.js";
import { everyExpr, everyObject } from "./samples.js";
import { junk, type Random, spoil } from "./spoil.ts";

export { errorReply, mutate, Random, Sabotage, spoil } from "./spoil.ts";

const verdicts: readonly Verdict[] = [{ verdict: "accept" }, { verdict: "jump", chain: "c" }];

/** Valid operations as a starting point. */
function valid(random: Random): Op {
  const t = ip("t");
  const some = (): readonly (typeof everyExpr)[number][] =>
    Array.from({ length: random.below(5) }, () => random.pick(everyExpr));
  const make: readonly (() => Op)[] = [
    () => addTable(t),
    () => ({ op: random.pick(["delete", "destroy"]), kind: "table", ...t, handle: 3n }),
    () => ({
      op: "add",
      kind: "chain",
      ...t,
      chain: "c",
      flags: 1,
      userdata: new Uint8Array(3),
      base: { type: "filter", hook: 0, priority: -5, policy: "drop", devices: ["eth0", "eth1"] },
    }),
    () => ({ op: "add", kind: "rule", ...t, chain: "c", exprs: some(), userdata: new Uint8Array(9), position: 2n }),
    () => ({ op: "replace", kind: "rule", ...t, chain: "c", exprs: some(), handle: 8n }),
    () => ({ op: "delete", kind: "rule", ...t, chain: "c", handle: 8n }),
    () => ({ op: "flush", kind: "rule", ...t }),
    () => addSet(t, addresses("s", { flags: SetFlag.timeout, timeout: 5n, size: 7, userdata: new Uint8Array(4) })),
    () => addSet(t, { ...addresses("s"), fieldLens: [4, 2], keyLen: 8, exprs: some(), policy: 1, gcInterval: 2 }),
    () => addSet(t, addresses("v", { flags: SetFlag.map, dataType: DATA_VERDICT })),
    () => elements(random.pick(["add", "create", "delete"]), t, "s", manyAddresses(random.below(2000))),
    () => {
      const count = random.below(10);
      const bytes = new Uint8Array(count * 32);
      for (let i = 0; i < count; i++) bytes[i * 32 + 8] = random.below(2);
      const columns = { keyEnd: true, flags: true, timeouts: true, expirations: true };
      return elements("add", t, "v", { count, keyLen: 4, dataLen: 4, verdicts, ...columns, bytes });
    },
    () => ({ op: "flush", kind: "elements", ...t, set: "s" }),
    () => {
      const [objType, data] = random.pick(everyObject);
      return { op: "add", kind: "object", ...t, object: "o", objType, data };
    },
  ];
  return random.pick(make)();
}

/** A few operations, most of them with an error. */
export function fuzzedOps(random: Random): readonly Op[] {
  const ops: unknown[] = Array.from({ length: random.below(4) + 1 }, () => {
    let op: unknown = valid(random);
    for (let i = random.below(3); i > 0; i--) op = spoil(op, random);
    return op;
  });
  if (random.chance(200)) return random.pick(junk)(random) as readonly Op[];
  if (random.chance(50)) ops.push(random.pick(junk)(random));
  return ops as readonly Op[];
}

export function validOps(random: Random): readonly Op[] {
  return Array.from({ length: random.below(4) + 1 }, () => valid(random));
}
