/**
 * Input from plain JavaScript is checked: each statement, specification and option with every field wrong in turn. The samples' types
 * require all fields of every kind, so a new kind or field does not compile here until it has a sample.
 */
import { describe, expect, test } from "vitest";
import {
  type Action,
  type ApplyOptions,
  type BaseChain,
  type ChainSpec,
  FieldError,
  type Insertion,
  type Kernel,
  type KernelOptions,
  openKernel,
  printRule,
  type SetSpec,
  type Statement,
  Table,
  type TableOptions,
  TableWatch,
} from "@nft-proxier/nft";

type ActionSamples = { readonly [K in Action["action"]]: Required<Extract<Statement, { action: K }>> };

const key = ["saddr", { field: "numgen", mode: "inc", modulus: 4, offset: 1 }] as const;
const hashed = [{ field: "jhash", of: ["saddr"], modulus: 4, seed: 1, offset: 1 }] as const;

const ACTIONS: ActionSamples = {
  counter: { action: "counter" },
  last: { action: "last" },
  log: {
    action: "log",
    prefix: "p",
    level: 4,
    flags: ["skuid"],
    group: 1,
    snaplen: 64,
    queueThreshold: 2,
  },
  limit: { action: "limit", rate: 5, per: "second", unit: "kbytes", burst: 5, over: true },
  quota: { action: "quota", bytes: 1000, over: true },
  connections: { action: "connections", count: 2, over: true },
  set: { action: "set", field: "meta nftrace", value: 1 },
  queue: { action: "queue", num: 3, bypass: true, fanout: true },
  tproxy: { action: "tproxy", address: "127.0.0.1", port: 8080 },
  dup: { action: "dup", address: "192.0.2.1", device: 1 },
  fwd: { action: "fwd", device: 1, address: "192.0.2.1" },
  synproxy: { action: "synproxy", mss: 1460, wscale: 7, sackPerm: true, timestamp: true },
  flow: { action: "flow", flowtable: "f" },
  raw: { action: "raw", exprs: [], text: "counter" },
  redirect: { action: "redirect", ports: 8080, random: true, fullyRandom: true, persistent: true },
  object: { action: "object", kind: "counter", name: "o", key: [...key], map: "m" },
  notrack: { action: "notrack" },
  "set-address": { action: "set-address", direction: "source", to: { ct: "reply", direction: "source" } },
  verdict: { action: "verdict", verdict: "goto web" },
  vmap: { action: "vmap", key: [...hashed], map: "m" },
  dnat: { action: "dnat", address: "192.0.2.1", port: 80, random: true, fullyRandom: true, persistent: true },
  snat: { action: "snat", address: "192.0.2.1", port: 80, random: true, fullyRandom: true, persistent: true },
  masquerade: {
    action: "masquerade",
    ports: { from: 1024, to: 2048 },
    random: true,
    fullyRandom: true,
    persistent: true,
  },
  reject: { action: "reject", with: "tcp-reset" },
  update: {
    action: "update",
    op: "add",
    set: "s",
    key: [...key],
    timeoutMs: 1000,
    data: { address: "192.0.2.1", port: 80 },
  },
  "connections-over": { action: "connections-over", set: "s", key: [...key], count: 4 },
  "rate-over": { action: "rate-over", set: "s", key: [...key], timeoutMs: 1000, rate: 1, per: "second", burst: 5 },
};

const BASE: Required<BaseChain> = {
  type: "filter",
  hook: "input",
  priority: "filter",
  policy: "drop",
  devices: ["eth0"],
};
const CHAIN: Required<ChainSpec> = {
  chain: "c",
  base: BASE,
  rules: [{ statements: [{ action: "counter" }], comment: "a rule" }],
  comment: "a chain",
};
const SET: Required<SetSpec> = {
  set: "s",
  key: ["ipv4_addr", "inet_service"],
  data: ["ipv4_addr"],
  interval: false,
  dynamic: false,
  timeoutMs: 1000,
  size: 100,
  counters: { carries: () => true },
  keep: false,
  comment: "a set",
};
const INSERTION: Insertion = {
  family: "ip",
  table: "t",
  chain: "c",
  mode: "insert",
  rules: [{ statements: [{ action: "counter" }], comment: "a rule" }],
};
const TABLE: Required<TableOptions> = {
  family: "ip",
  name: "mine",
  comment: "a table",
  own: false,
  ownerMark: "me",
  clock: { now: () => 0 },
  gracePeriodMs: 500,
  pieceElements: 10_000,
};
const KERNEL: Required<KernelOptions> = {
  netns: "/proc/self/ns/net",
  programName: "me",
  sendBufferBytes: 65_536,
  receiveBufferBytes: 65_536,
};

/** Values that are wrong for a field with this value, unless the field also accepts other types. */
function wrongValues(sample: unknown): unknown[] {
  if (typeof sample === "string") return [7, true, null, {}, [], "", `${sample} "`];
  if (typeof sample === "number") return [String(sample), true, null, {}, [], Number.NaN, 1.5, -1, 2 ** 60];
  if (typeof sample === "boolean") return [String(sample), 1, null, {}, []];
  if (typeof sample === "function") return ["f", 1, true, null, {}];
  return ["x", 7, true, null, Array.isArray(sample) ? {} : []];
}

/** Values from above that these fields accept. */
const RIGHT: Readonly<Record<string, readonly unknown[]>> = {
  protocol: [7],
  priority: [7],
  ports: [7],
  comment: [""],
  prefix: [""],
  netns: ['/proc/self/ns/net "'],
  programName: ['me "'],
  ownerMark: ['me "'],
  devices: ['eth0 "'],
  text: ["", 'counter "'],
};

type Changed = readonly [title: string, value: unknown];

/** Yields the sample with one error, in every place. */
function* spoilt(sample: unknown, name = "", isTop = true): Generator<Changed> {
  if (!isTop) {
    for (const wrong of wrongValues(sample)) {
      if (!(RIGHT[name] ?? []).includes(wrong)) yield [`is ${JSON.stringify(wrong) ?? "a function"}`, wrong];
    }
  }
  if (typeof sample !== "object" || sample === null) return;
  if (Array.isArray(sample)) {
    for (const [index, item] of sample.entries())
      for (const [title, value] of spoilt(item, name, false)) yield [`[${index}] ${title}`, sample.with(index, value)];
    return;
  }
  for (const [field, value] of Object.entries(sample)) {
    const { [field]: _, ...rest } = sample as Record<string, unknown>;
    yield [`has ${field} misspelt`, { ...rest, [`${field}x`]: value }];
    yield [`has the extra field ${field}x`, { ...sample, [`${field}x`]: value }];
    for (const [title, changed] of spoilt(value, field, false))
      yield [`${field} ${title}`, { ...sample, [field]: changed }];
  }
}

function declared(): Table {
  // No kernel is needed: the table is declared and printed.
  return new Table({ portId: 0 } as Kernel, { family: "ip", name: "mine" });
}

function refusal(action: () => unknown): unknown {
  try {
    action();
    return "taken";
  } catch (error) {
    return error;
  }
}

/** Tries every wrong value. Returns the number of tries. */
function expectRefusals(sample: unknown, use: (given: never) => unknown): number {
  let tried = 0;
  for (const [title, given] of spoilt(sample)) {
    const error = refusal(() => use(given as never));
    expect(error, `${title}: ${String(error)}`).toBeInstanceOf(FieldError);
    tried++;
  }
  return tried;
}

describe("a statement with an error is refused, and changes nothing:", () => {
  test.each(Object.entries(ACTIONS))("%s", (_, sample) => {
    const table = declared();
    const before = table.render();
    const chain = (given: Statement): void => table.chain({ chain: "c", rules: [{ statements: [given] }] });
    // "counter" has only its tag.
    expect(expectRefusals(sample, chain)).toBeGreaterThanOrEqual(8);
    expect(expectRefusals(sample, (given: Statement) => printRule([given], { family: "ip" }))).toBeGreaterThan(0);
    expect(table.render()).toBe(before);
  });
});

describe("an error is refused in", () => {
  test("a chain", () => {
    const table = declared();
    expectRefusals(CHAIN, (given: ChainSpec) => table.chain(given));
    expect(table.render()).toBe(declared().render());
  });

  test("a set", () => {
    const table = declared();
    expectRefusals(SET, (given: SetSpec) => table.set(given));
    expect(table.render()).toBe(declared().render());
  });

  test("an insertion, and options", async () => {
    const kernel = { portId: 0 } as Kernel;
    const table = new Table(kernel, TABLE);
    expectRefusals(INSERTION, (given: Insertion) => table.insertions(given));
    expectRefusals(TABLE, (given: TableOptions) => new Table(kernel, given));
    expectRefusals({ family: "ip", sets: [SET] }, (given: { family: "ip" }) =>
      printRule([{ action: "counter" }], given),
    );
    const handlers = { changed: () => undefined, lost: () => undefined, failed: () => undefined };
    expectRefusals(handlers, (given: typeof handlers) => new TableWatch(kernel, [table], given));
    const waits = { firstWaitMs: 1, longestWaitMs: 2 };
    expectRefusals(waits, (given: typeof waits) => new TableWatch(kernel, [table], handlers, given));
    // A program's own object may have state besides the functions.
    class Counting {
      seen = 0;
      changed = (): void => void this.seen++;
      lost(): void {}
      failed(): void {}
    }
    expect(new TableWatch(kernel, [table], new Counting())).toBeInstanceOf(TableWatch);
    expect(() => new TableWatch(kernel, [table], Object.assign(new Counting(), { lost: 1 as never }))).toThrow(
      "handlers, lost",
    );
    for (const [title, given] of spoilt(KERNEL))
      await expect(openKernel(given as KernelOptions), title).rejects.toBeInstanceOf(FieldError);
  });
});

/** Typos of a plain JavaScript user, with their error messages. */
const TYPOS: readonly (readonly [given: object, message: string])[] = [
  [
    { action: "set-address", direction: "src", to: "192.0.2.1" },
    'chain c, rule 0, statement 0, direction: expected one of source, destination, found "src"',
  ],
  [
    { field: "ct state", value: ["establish"] },
    'value[0]: expected a number from 0 to 4294967295, or one of invalid, established, related, new, untracked, found "establish"; did you mean "established"?',
  ],
  [
    { field: "th dport", value: 22, mak: 1 },
    'statement 0, mak: expected no such key; the keys are field, op, value, mask, found 1; did you mean "mask"?',
  ],
  [
    { field: ["ip saddr"], value: "@s", op: "not-in" },
    'op: expected one of ==, !=, <, <=, >, >=, in, not in, found "not-in"',
  ],
  [{ field: { field: "fib", of: ["daddr"], result: "Type" }, value: "local" }, 'did you mean "type"?'],
  [
    { action: "masquerade", random: "yes", ports: { from: 1024, to: 2048 } },
    'random: expected true or false, found "yes"',
  ],
  [
    { field: "meta l4proto", value: "upd" },
    'value: expected a protocol ("tcp", or a number from 0 to 255), found "upd"; did you mean "udp"?',
  ],
  [
    { field: "tcp flags", value: ["SYN"] },
    'statement 0, value[0]: expected a number from 0 to 255, or one of fin, syn, rst, psh, ack, urg, ecn, cwr, found "SYN"; did you mean "syn"?',
  ],
  [{ field: "meta iifname", value: "lo" }, 'found "meta iifname"; did you mean "iifname"?'],
  [{ field: "tcp dpart", value: 22 }, 'found "tcp dpart"; did you mean "tcp dport"?'],
  [
    { field: "tcp dport", value: [22, { from: 90, to: 80 }] },
    'statement 0, value[1]: expected a range whose end is not before its start, found {"from":90,"to":80}',
  ],
  [
    { field: "tcp dport", value: [22, [80, 90]] },
    "statement 0, value[1]: expected a port from 0 to 65535, or { from, to }, found [80, 90]",
  ],
  [
    { field: "ip saddr", value: "10.0.0.0/33" },
    'value: expected an IPv4 address ("192.0.2.1"), a network or a range ("FROM-TO"), found "10.0.0.0/33"',
  ],
  [{ field: "ip ttl", op: "=", value: 1 }, "op: expected one of ==, !=, <, <=, >, >=, in, not in"],
  [{ action: "set", field: "meta l4proto", value: 6 }, "field: expected one of"],
  [
    { feild: "port" },
    'chain c, rule 0, statement 0: expected a statement, with "field" or "action", found {"feild":"port"}',
  ],
];

test.each(TYPOS)("%j names the field, what was expected, and the nearest name", (given, message) => {
  const error = refusal(() => declared().chain({ chain: "c", rules: [{ statements: [given as Statement] }] }));
  expect((error as FieldError).message).toContain(message);
});

test("a misspelt option or field gets a suggestion", () => {
  const table = declared();
  const base = { type: "filter", hook: "input", priority: 0, policty: "drop" } as const;
  const nearest = (action: () => unknown): unknown => (refusal(action) as FieldError).nearest;
  expect(nearest(() => table.chain({ chain: "c", base, rules: [] }))).toBe("policy");
  expect(nearest(() => table.set({ set: "s", key: ["ipv4_addr"], timeout: 5000 } as SetSpec))).toBe("timeoutMs");
  expect(nearest(() => new Table({} as Kernel, { family: "ip", name: "t", owner: true } as TableOptions))).toBe("own");
  expect(nearest(() => table.set({ set: "s", key: ["ip4_addr"] } as unknown as SetSpec))).toBe("ipv4_addr");
});

test("apply() rejects an unknown option through its promise", async () => {
  const table = new Table({ portId: 1 } as Kernel, { family: "ip", name: "t" });
  for (const given of [{ rebild: true }, { rebuild: "yes" }]) {
    const apply = table.apply(given as unknown as ApplyOptions);
    await expect(apply).rejects.toBeInstanceOf(FieldError);
  }
});
