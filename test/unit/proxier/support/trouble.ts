/** Random failures: rejections, lost replies and events, broken dumps, and other processes' changes to the tables. */
import type { FakeKernel } from "../../../fakes/fake-kernel.ts";
import type { Op, OpKind, TableRef } from "../../../../src/nft/kernel/kernel.js";
import type { Dice } from "../../../support/dice.ts";

const KINDS: readonly OpKind[] = ["chain", "rule", "set", "elements"];

/** Causes one failure, and says which. */
export async function trouble(dice: Dice, kernel: FakeKernel, other: FakeKernel): Promise<string> {
  const roll = dice.below(100);
  if (roll < 15) {
    const kind = dice.pick(KINDS);
    const errno = dice.pick(["ENOMEM", "EEXIST", "ENOENT", "EBUSY"]);
    let skip = dice.below(4);
    kernel.failNext({ when: (op) => op.kind === kind && skip-- <= 0, errno });
    return `refuse ${kind} with ${errno}`;
  }
  if (roll < 27) {
    kernel.loseReply();
    return "lose a reply";
  }
  if (roll < 35) {
    kernel.loseEvents();
    return "lose events";
  }
  if (roll < 40) {
    kernel.breakMonitors(new Error("the socket died"));
    return "break monitors";
  }
  if (roll < 47) {
    const count = 1 + dice.below(3);
    kernel.interruptDumps(count);
    return `interrupt ${count} dumps`;
  }
  const op = await foreignOp(dice, other);
  if (op === undefined) return "nothing to touch";
  const done = await other.commit(op).then(
    () => "",
    (error: unknown) => ` (${String(error)})`,
  );
  return `foreign ${op.map((each) => `${each.op} ${each.kind} ${JSON.stringify(nameOf(each))}`).join(", ")}${done}`;
}

function nameOf(op: Op): unknown {
  if ("chain" in op) return op.chain;
  return "set" in op ? op.set : op.family;
}

async function foreignOp(dice: Dice, other: FakeKernel): Promise<Op[] | undefined> {
  const tables = (await other.tables()).map(({ family, table }): TableRef => ({ family, table }));
  if (tables.length === 0) return undefined;
  const ref = dice.pick(tables);
  const roll = dice.below(100);
  if (roll < 12) return tables.map((table) => ({ op: "delete", kind: "table", ...table }));
  if (roll < 18) return [{ op: "delete", kind: "table", ...ref }];
  if (roll < 45) return foreignElements(dice, other, ref);
  const chains = await other.chains(ref);
  if (chains.length === 0 || roll < 52) return [{ op: "add", kind: "chain", ...ref, chain: `theirs-${dice.below(3)}` }];
  const { chain, base } = dice.pick(chains);
  if (roll < 60 && base !== undefined) {
    return [{ op: "add", kind: "chain", ...ref, chain, base: { ...base, policy: "drop" } }];
  }
  if (roll < 70) return [{ op: "add", kind: "rule", ...ref, chain, exprs: [{ type: "counter" }] }];
  if (roll < 75) return [{ op: "delete", kind: "chain", ...ref, chain }];
  if (roll < 85) return [{ op: "flush", kind: "rule", ...ref, chain }];
  const rules = await other.rules(ref);
  if (rules.length === 0) return undefined;
  const rule = dice.pick(rules);
  return [{ op: "delete", kind: "rule", ...ref, chain: rule.chain, handle: rule.handle }];
}

/**
 * Deletes an element, empties or deletes a set, or adds an element that differs from another only in its key's last
 * byte.
 */
async function foreignElements(dice: Dice, other: FakeKernel, ref: TableRef): Promise<Op[] | undefined> {
  const sets = (await other.sets(ref)).filter(({ set }) => !set.startsWith("__set"));
  if (sets.length === 0) return undefined;
  const info = dice.pick(sets);
  const { set } = info;
  const roll = dice.below(100);
  if (roll < 10) return [{ op: "flush", kind: "elements", ...ref, set }];
  if (roll < 15) return [{ op: "delete", kind: "set", ...ref, set }];
  const all = await other.elements(ref, info);
  if (all.count === 0) return undefined;
  const stride = all.bytes.length / all.count;
  const at = dice.below(all.count) * stride;
  const bytes = Uint8Array.from(all.bytes.subarray(at, at + stride));
  const elements = { ...all, count: 1, bytes };
  if (roll < 55) return [{ op: "delete", kind: "elements", ...ref, set, elements }];
  bytes[dice.below(all.keyLen)] ^= 1 << dice.below(8);
  return [{ op: "add", kind: "elements", ...ref, set, elements }];
}
