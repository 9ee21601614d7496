/**
 * Random batches on both kernels: every answer, every result and every event must be equal. The fake is useful only as long as it keeps
 * state like the kernel, also in cases that no row describes. Expressions and attributes are valid, because the fake does not check them.
 */
import { release } from "node:os";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DataTypeId, ObjectType, SetFlag } from "../../src/nft/kernel/constants.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import type { ChangeBatch, Expr, Kernel, ObjectData, Op, SetInfo, Verdict } from "../../src/nft/kernel/kernel.js";
import { openFake, type KernelWorld } from "../support/kernel-world.ts";
import { snapshot } from "../support/snapshot.ts";
import {
  addressMap,
  addressSet,
  daddr,
  goto,
  input,
  jump,
  lookup,
  newSet,
  pack,
  T,
  verdict,
  verdictMap,
  type Element,
} from "../support/operations.ts";
import { factsOf } from "../support/kernel-facts.ts";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { atLength } from "../lab/length.ts";
import { Dice } from "../support/dice.ts";

const ROUNDS = atLength({ short: 1, usual: 8, nightly: 40 });
const BATCHES = 60;
/** Two jiffies of the longest kind (HZ=100), ms: intervals remember the last start of a batch until the jiffy ends. */
const NEXT_JIFFY_MS = 20;
const SEED = Number(process.env.FUZZ_SEED ?? 20_251_121);

const CHAINS = ["a", "b", "c", "in", "nat"];
const nat = { type: "nat", hook: 0, priority: -100 } as const;
const SETS: readonly SetInfo[] = [
  addressSet("s", { size: 3 }),
  addressMap("m"),
  verdictMap("v"),
  addressSet("i", { flags: SetFlag.interval }),
  addressMap("j", { flags: SetFlag.interval | SetFlag.map, size: 3 }),
  addressSet("k", { flags: SetFlag.constant }),
  addressSet("p", {
    flags: SetFlag.interval | SetFlag.concat,
    keyLen: 8,
    keyType: (DataTypeId.ipv4_addr << 6) | DataTypeId.inet_service,
    fieldLens: [4, 2],
  }),
  addressSet("d", { flags: SetFlag.eval | SetFlag.timeout, timeout: 600_000n }),
  addressSet("o", { flags: SetFlag.object, objType: ObjectType.counter }),
];
const OBJECTS = ["x", "y"];
const ADDRESSES = ["0.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "255.255.255.255"];

/** An operation that uses the handle of the rule at an index; handles differ between the kernels. */
type Draft = (handle: (chain: string, index: number) => bigint) => Op;

class Generator {
  constructor(private readonly dice: Dice) {}

  batch(): Draft[] {
    const count = 1 + this.dice.below(6);
    return Array.from({ length: count }, (_, i) => (this.dice.chance(6) ? this.ruleWithSet(i) : [this.draft()])).flat();
  }

  /** A rule with its own anonymous set; sometimes without the rule, or twice with the same set. */
  private ruleWithSet(setId: number): Draft[] {
    const { dice } = this;
    const interval = dice.chance(50);
    const flags = SetFlag.anonymous | SetFlag.constant | (interval ? SetFlag.interval : 0);
    const info = addressSet("__set%d", { flags });
    const elements = pack(Array.from({ length: 1 + dice.below(2) }, () => this.element(info, interval)).flat());
    const name = { set: "__set%d", setId };
    const rule = {
      op: "add",
      kind: "rule",
      ...T,
      chain: dice.pick(CHAINS),
      exprs: [daddr, lookup("__set%d", { setId })],
    } as const;
    const ops: Op[] = [newSet(info, "add", setId), { op: "add", kind: "elements", ...T, ...name, elements }];
    const times = dice.pick([1, 1, 1, 1, 1, 1, 0, 2]);
    return [...ops, ...Array.from({ length: times }, () => rule)].map(fixed);
  }

  private draft(): Draft {
    const { dice } = this;
    const roll = dice.below(100);
    if (roll < 3) return fixed({ op: dice.pick(["add", "create", "delete", "destroy"] as const), kind: "table", ...T });
    if (roll < 10) return fixed(this.object());
    if (roll < 22) return fixed(this.chain());
    if (roll < 47) return this.rule();
    if (roll < 59) return fixed(this.set());
    if (roll < 62) return fixed({ op: "flush", kind: "elements", ...T, set: dice.pick(SETS).set });
    return fixed(this.elements());
  }

  private object(): Op {
    const { dice } = this;
    const data = dice.pick<ObjectData>([
      { type: "counter", packets: 1n, bytes: 2n },
      { type: "counter" },
      { type: "quota", bytes: 10n, consumed: 10n },
      { type: "quota", bytes: 7n, flags: 1 },
      { type: "limit", rate: 1n, unit: 1n },
    ]);
    const object = {
      kind: "object",
      ...T,
      object: dice.pick(OBJECTS),
      objType: ObjectType[data.type as "counter"],
    } as const;
    const op = dice.pick(["add", "add", "create", "delete", "destroy"] as const);
    return op === "delete" || op === "destroy" ? { op, ...object } : { op, ...object, data };
  }

  private chain(): Op {
    const { dice } = this;
    const chain = dice.pick(CHAINS);
    const base = chain === "in" ? input : chain === "nat" ? nat : undefined;
    const given = dice.chance(5) ? input : base;
    const op = dice.pick(["add", "add", "create", "delete", "destroy"] as const);
    if (op === "delete" || op === "destroy") return { op, kind: "chain", ...T, chain };
    return { op, kind: "chain", ...T, chain, ...(given && { base: given }) };
  }

  /** Valid expressions without loops of jumps: what the fake does not check must not decide the answer. */
  private exprs(chain: string): Expr[] {
    const { dice } = this;
    const isBase = chain === "in" || chain === "nat";
    const set = dice.pick(SETS.filter(({ set, keyLen }) => keyLen === 4 && (isBase || set !== "v")));
    switch (dice.below(8)) {
      case 0:
        return dice.chance(50)
          ? [verdict("drop")]
          : [daddr, { type: "dynset", set: "d", op: dice.below(3), sregKey: 1 }];
      case 1:
        return [{ type: "notrack" }];
      case 2:
        return [{ type: "counter" }, { type: "reject", rejectType: 0, code: 3 }];
      case 3:
      case 4:
        return [jump(dice.pick(isBase ? CHAINS : CHAINS.slice(CHAINS.indexOf(chain) + 1)))];
      case 5:
        return dice.chance(30)
          ? [daddr, { type: "objref", setSreg: 1, setName: "o" }]
          : [{ type: "objref", immType: dice.pick([1, 1, 2]), immName: dice.pick(OBJECTS) }];
      default:
        return [daddr, lookup(set.set, (set.flags & SetFlag.map) !== 0 ? { dreg: set.set === "v" ? 0 : 1 } : {})];
    }
  }

  private rule(): Draft {
    const { dice } = this;
    const chain = dice.pick(CHAINS);
    const index = dice.below(4);
    const exprs = this.exprs(chain);
    switch (dice.below(9)) {
      case 0:
        return fixed({ op: "flush", kind: "rule", ...T, ...(dice.chance(80) && { chain }) });
      case 1:
        return (handle) => ({ op: "delete", kind: "rule", ...T, chain, handle: handle(chain, index) });
      case 2:
        return (handle) => ({ op: "destroy", kind: "rule", ...T, chain, handle: handle(chain, index) });
      case 3:
        return (handle) => ({ op: "replace", kind: "rule", ...T, chain, exprs, handle: handle(chain, index) });
      case 4: {
        const op = dice.pick(["add", "insert"] as const);
        return (handle) => ({ op, kind: "rule", ...T, chain, exprs, position: handle(chain, index) });
      }
      default:
        return fixed({ op: dice.pick(["add", "insert"] as const), kind: "rule", ...T, chain, exprs });
    }
  }

  private set(): Op {
    const { dice } = this;
    const info = dice.pick(SETS);
    const op = dice.pick(["add", "add", "create", "delete", "destroy"] as const);
    return op === "delete" || op === "destroy" ? { op, kind: "set", ...T, set: info.set } : newSet(info, op);
  }

  private elements(): Op {
    const { dice } = this;
    const info = dice.pick(SETS);
    const op = dice.pick(["add", "add", "add", "create", "delete", "destroy"] as const);
    const interval = (info.flags & SetFlag.interval) !== 0;
    const list = Array.from({ length: 1 + dice.below(3) }, () => this.element(info, interval));
    return { op, kind: "elements", ...T, set: info.set, elements: pack(list.flat()) };
  }

  private element(info: SetInfo, interval: boolean): Element[] {
    const { dice } = this;
    const data: Element["data"] | undefined =
      info.set === "v"
        ? this.verdict()
        : (info.flags & SetFlag.map) !== 0
          ? dice.pick(["1.1.1.1", "2.2.2.2"])
          : undefined;
    const extra = {
      data,
      ...(info.set === "d" && { timeout: dice.pick([0, 300_000]) }),
      ...(info.set === "o" && { object: dice.pick(OBJECTS) }),
    };
    if (info.set === "p") return [this.box()];
    if (!interval && dice.chance(5)) return [{ key: "0.0.0.0", flags: 2, ...extra }];
    if (!interval) return [{ key: dice.pick(ADDRESSES), ...extra }];
    if (dice.chance(15)) return [{ key: dice.pick(ADDRESSES), flags: dice.below(2), ...extra }];
    const from = dice.below(ADDRESSES.length - 1);
    const to = from + 1 + dice.below(ADDRESSES.length - 1 - from);
    return [
      { key: ADDRESSES[from], flags: 0, ...extra },
      { key: ADDRESSES[to], flags: 1 },
    ];
  }

  /** Ranges of an address and a port. */
  private box(): Element {
    const { dice } = this;
    const point = (last: number, port: number): Uint8Array => Uint8Array.of(10, 0, 0, last, 0, port, 0, 0);
    const [address, port] = [dice.below(6), dice.below(6)];
    return { key: point(address, port), keyEnd: point(address + dice.below(3), port + dice.below(3)) };
  }

  private verdict(): Verdict {
    return this.dice.chance(20) ? { verdict: "drop" } : goto(this.dice.pick(CHAINS));
  }
}

function fixed(op: Op): Draft {
  return () => op;
}

interface Side {
  readonly world: KernelWorld;
  readonly heard: ChangeBatch[];
}

async function listen(world: KernelWorld): Promise<Side> {
  const heard: ChangeBatch[] = [];
  const fail = (error?: Error): never => {
    throw error ?? new Error("events were lost");
  };
  await world.kernel.monitor(
    { onBatch: (batch) => void heard.push(batch), onLost: fail, onError: fail },
    { skipOwn: false },
  );
  return { world, heard };
}

/** Commits the drafts and returns everything that can be compared. */
async function play({ world, heard }: Side, drafts: readonly Draft[]): Promise<unknown> {
  const { kernel } = world;
  const rules = await kernel.rules(T);
  const handle = (chain: string, index: number): bigint =>
    rules.filter((rule) => rule.chain === chain)[index]?.handle ?? 999_999n;
  const before = (await kernel.generation()).id;
  const answer = await commit(
    kernel,
    drafts.map((draft) => draft(handle)),
  );
  const after = (await kernel.generation()).id;
  await expect.poll(() => after === before || heard.at(-1)?.generation === after, { interval: 2 }).toBe(true);
  const events =
    after === before
      ? []
      : heard.at(-1)?.events.map(({ action, kind, name, count }) => [action, kind, name, count].join(" "));
  return { answer, generations: after - before, events, state: await snapshot(kernel) };
}

async function commit(kernel: Kernel, ops: readonly Op[]): Promise<unknown> {
  try {
    await kernel.commit(ops);
    return "accepted";
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return { code: error.code, faults: error.faults.map(({ op, element, errno }) => [op, errno, element].join(" ")) };
  }
}

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

const SEEDS = Array.from({ length: ROUNDS }, (_, round) => SEED + round);
// Sooner or later, random batches reach every difference of an older kernel.
const [each, note] = factsOf(release()).asTheFake
  ? [test.each(SEEDS), ""]
  : [test.skip.each(SEEDS), ": skipped, as the fake is a Linux 6.18, and this is older"];
each(`both kernels agree, seed %i${note}`, async (seed) => {
  const real = await listen(await openReal(() => namespace)());
  const fake = await listen(await openFake());
  const generator = new Generator(new Dice(seed));
  const room: Draft[] = [
    { op: "add", kind: "table", ...T } as const,
    ...["a", "b", "c"].map((chain) => ({ op: "add", kind: "chain", ...T, chain }) as const),
    { op: "add", kind: "chain", ...T, chain: "in", base: input } as const,
    ...SETS.map((info) => newSet(info)),
  ].map(fixed);
  for (let number = 0; number < BATCHES; number++) {
    const drafts = number % 20 === 0 ? room : generator.batch();
    const ops = drafts.map((draft) => draft((_chain, index) => BigInt(index)));
    await setTimeout(NEXT_JIFFY_MS);
    const expected = await play(real, drafts);
    expect(await play(fake, drafts), `batch ${number} of seed ${seed}: ${describe(ops)}`).toEqual(expected);
  }
  await real.world.close();
  await fake.world.close();
});

function describe(ops: readonly Op[]): string {
  return JSON.stringify(ops, (_key, value: unknown) =>
    typeof value === "bigint" ? `#${value}` : value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value,
  );
}
