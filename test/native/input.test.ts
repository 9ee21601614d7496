import { describe, expect, test } from "vitest";
import { loadAddon } from "../../src/nft/kernel/addon.js";
import type { Op } from "../../src/nft/kernel/kernel.js";
import { addresses, addTable, elements, ip, kernelError, manyAddresses, useLab } from "./lab.js";
import { testAddon } from "./test-addon.js";

const lab = useLab();
const ref = ip("t");

/** Detaches the buffer of a view, as sending it to a worker does. */
function detach({ buffer }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer) structuredClone(buffer, { transfer: [buffer] });
}

/** Each with the field that the message must name. The operation is number 1 of two. */
const refused: readonly (readonly [title: string, op: unknown, message: string])[] = [
  ["no object", 7, "op 1: expected an object"],
  ["no verb", { kind: "table", ...ref }, "op 1: op: expected a string"],
  ["an unknown verb", { op: "mend", kind: "table", ...ref }, 'op 1: op: unknown operation "mend"'],
  ["an unknown kind", { op: "add", kind: "shelf", ...ref }, 'op 1: kind: unknown kind "shelf"'],
  ["a verb of another kind", { op: "insert", kind: "table", ...ref }, 'op 1: op: not an operation of kind "table"'],
  ["an unknown family", { op: "add", kind: "table", family: "ip5", table: "t" }, 'op 1: family: unknown family "ip5"'],
  ["an empty name", { op: "add", kind: "table", family: "ip", table: "" }, "op 1: table: expected a non-empty string"],
  [
    "a name with NUL",
    { op: "add", kind: "table", family: "ip", table: "a\0b" },
    "op 1: table: expected a string without NUL",
  ],
  [
    "a long name",
    { op: "add", kind: "table", family: "ip", table: "é".repeat(128) },
    "op 1: table: expected at most 255 bytes",
  ],
  ["flags out of range", { ...addTable(ref), flags: 2 ** 32 }, "op 1: flags: expected an integer from 0 to 4294967295"],
  ["flags that are no integer", { ...addTable(ref), flags: 0.5 }, "op 1: flags: expected an integer"],
  ["a numeric handle", { op: "delete", kind: "table", ...ref, handle: 7 }, "op 1: handle: expected a bigint"],
  [
    "a negative handle",
    { op: "delete", kind: "table", ...ref, handle: -1n },
    "op 1: handle: expected a bigint from 0 to 2^64 - 1",
  ],
  [
    "a huge handle",
    { op: "delete", kind: "table", ...ref, handle: 2n ** 64n },
    "op 1: handle: expected a bigint from 0 to 2^64 - 1",
  ],
  ["long userdata", { ...addTable(ref), userdata: new Uint8Array(257) }, "op 1: userdata: expected at most 256 bytes"],
  [
    "userdata of another kind",
    { ...addTable(ref), userdata: new Uint16Array(2) },
    "op 1: userdata: expected a Uint8Array",
  ],
  [
    "a priority out of range",
    { op: "add", kind: "chain", ...ref, chain: "c", base: { type: "nat", hook: 0, priority: 2 ** 31 } },
    "op 1: base.priority: expected an integer from -2147483648 to 2147483647",
  ],
  [
    "an unknown policy",
    { op: "add", kind: "chain", ...ref, chain: "c", base: { type: "nat", hook: 0, priority: 0, policy: "maybe" } },
    'op 1: base.policy: expected "accept" or "drop"',
  ],
  [
    "a long device",
    {
      op: "add",
      kind: "chain",
      ...ref,
      chain: "c",
      base: { type: "filter", hook: 0, priority: 0, devices: ["a", "x".repeat(16)] },
    },
    "op 1: base.devices[1]: expected at most 15 bytes",
  ],
  ["a removal without a handle", { op: "delete", kind: "rule", ...ref, chain: "c" }, "op 1: handle: expected a bigint"],
  ["no expressions", { op: "add", kind: "rule", ...ref, chain: "c" }, "op 1: exprs: expected an array"],
  ["an unknown expression", rule({ type: "mata", key: 1 }), 'op 1: exprs[1].type: unknown expression "mata"'],
  ["a missing field", rule({ type: "cmp", sreg: 1, op: 0 }), "op 1: exprs[1].data: is missing"],
  [
    "a byte out of range",
    rule({ type: "reject", rejectType: 0, code: 256 }),
    "op 1: exprs[1].code: expected an integer from 0 to 255",
  ],
  [
    "two bytes out of range",
    rule({ type: "log", group: 65536 }),
    "op 1: exprs[1].group: expected an integer from 0 to 65535",
  ],
  [
    "data of 65 bytes",
    rule({ type: "cmp", sreg: 1, op: 0, data: new Uint8Array(65) }),
    "op 1: exprs[1].data: expected at most 64 bytes",
  ],
  [
    "an unknown verdict",
    rule({ type: "immediate", dreg: 0, data: { verdict: "perhaps" } }),
    'op 1: exprs[1].data.verdict: unknown verdict "perhaps"',
  ],
  [
    "a jump without a chain",
    rule({ type: "immediate", dreg: 0, data: { verdict: "jump" } }),
    "op 1: exprs[1].data.chain: expected a string",
  ],
  [
    "extra out of range",
    rule({ type: "masq", extra: [{ type: 65536, bytes: new Uint8Array() }] }),
    "op 1: exprs[1].extra[0].type: expected an integer from 0 to 65535",
  ],
  [
    "too many expressions",
    { op: "add", kind: "rule", ...ref, chain: "c", exprs: Array.from({ length: 129 }, () => ({ type: "counter" })) },
    "op 1: exprs: expected at most 128 entries",
  ],
  [
    "too many bytes of expressions",
    {
      op: "add",
      kind: "rule",
      ...ref,
      chain: "c",
      exprs: [1, 2].map(() => ({ type: "opaque", name: "x", data: new Uint8Array(40_000) })),
    },
    "op 1: exprs: expressions exceed 65000 bytes",
  ],
  ["expressions that nest too deeply", rule(nested(5)), "expressions nest too deeply"],
  [
    "a key of no bytes",
    { op: "add", kind: "set", ...ref, ...addresses("s", { keyLen: 0 }) },
    "op 1: keyLen: expected an integer from 1 to 64",
  ],
  [
    "an id that is reserved",
    { op: "add", kind: "set", ...ref, ...addresses("s"), id: 2 ** 31 },
    "op 1: id: expected an integer from 0 to 2147483647",
  ],
  [
    "too many fields",
    { op: "add", kind: "set", ...ref, ...addresses("s"), fieldLens: Array.from({ length: 17 }, () => 4) },
    "op 1: fieldLens: expected at most 16 entries",
  ],
  ["no elements", { op: "add", kind: "elements", ...ref, set: "s" }, "op 1: elements: expected an object"],
  [
    "too few bytes",
    elements("add", ref, "s", { ...manyAddresses(3), count: 4 }),
    "op 1: elements.bytes: expected 4 records of 4 bytes, found 12 bytes",
  ],
  [
    "a count that would overflow",
    elements("add", ref, "s", { ...manyAddresses(1), count: 2 ** 53 }),
    "op 1: elements.count: expected an integer",
  ],
  [
    "a wide key",
    elements("add", ref, "s", { count: 1, keyLen: 65, dataLen: 0, bytes: new Uint8Array(65) }),
    "op 1: elements.keyLen: expected an integer from 1 to 64",
  ],
  [
    "verdicts of 8 bytes",
    elements("add", ref, "s", { count: 0, keyLen: 4, dataLen: 8, verdicts: [], bytes: new Uint8Array() }),
    "op 1: elements.dataLen: expected 4, because the set is a verdict map",
  ],
  [
    "a missing verdict",
    elements("add", ref, "s", {
      count: 2,
      keyLen: 4,
      dataLen: 4,
      verdicts: [{ verdict: "drop" }],
      bytes: Uint8Array.of(1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0),
    }),
    "elements: verdict index 1 of record 1 is not in verdicts",
  ],
];

function rule(expr: unknown): unknown {
  return { op: "add", kind: "rule", ...ref, chain: "c", exprs: [{ type: "counter" }, expr] };
}
function nested(depth: number): unknown {
  if (depth === 0) return { type: "counter" };
  return { type: "dynset", set: "s", op: 0, sregKey: 1, exprs: [nested(depth - 1)] };
}

describe("an operation that cannot be encoded is refused with its number and its field", () => {
  test.each(refused)("%s", async (_, op, message) => {
    const error = await kernelError(lab().kernel.commit([addTable(ref), op as Op]));
    expect(error).toMatchObject({ code: "invalid", details: { action: "commit" } });
    expect(error.message).toContain(message);
    expect(await lab().kernel.tables()).toEqual([]);
  });
});

test("invalid arguments of the other calls are refused", async () => {
  const { kernel } = lab();
  const calls: readonly (readonly [Promise<unknown>, string])[] = [
    [kernel.commit("ops" as never), "ops: expected an array"],
    [kernel.commit([], { expectGeneration: -1 }), "options: expectGeneration: expected an integer"],
    [kernel.commit([], { dryRun: 1 as never }), "options: dryRun: expected a boolean"],
    [kernel.tables("ip5" as never), 'family: unknown family "ip5"'],
    [kernel.chains({ family: "ip", table: "\0" }), "table: table: expected a string without NUL"],
    [kernel.rules(ref, "x".repeat(256)), "chain: expected at most 255 bytes"],
    [kernel.sets(undefined as never), "table: expected an object"],
    [kernel.elements(ref, { ...addresses("s"), keyLen: 65 }), "set: keyLen: expected an integer from 1 to 64"],
    [kernel.monitor(undefined as never, { tables: [7 as never] }), "options: tables[0]: expected an object"],
  ];
  for (const [call, message] of calls) {
    const error = await kernelError(call);
    expect(error.code).toBe("invalid");
    expect(error.message).toContain(message);
  }
  // These calls have no message to check, only argument types.
  expect(() => loadAddon().portId(undefined as never)).toThrow("expected a connection");
  expect(() => testAddon.decodeMessages("bytes" as never)).toThrow("bytes: expected a Uint8Array");
});

describe("buffers that change", () => {
  test("a detached buffer has no bytes", async () => {
    const batch = manyAddresses(4);
    detach(batch.bytes);
    const error = await kernelError(lab().kernel.commit([elements("add", ref, "s", batch)]));
    expect(error.message).toContain("elements.bytes: expected 4 records of 4 bytes, found 0 bytes");
  });

  test("a buffer that a getter of a later operation detaches is noticed", async () => {
    const batch = manyAddresses(4);
    const trap = {
      op: "add",
      kind: "table",
      family: "ip",
      get table(): string {
        detach(batch.bytes);
        return "t";
      },
    } as const;
    const error = await kernelError(lab().kernel.commit([elements("add", ref, "s", batch), trap]));
    expect(error.code).toBe("invalid");
    expect(error.message).toContain("op 0: elements.bytes: changed its length during the commit");
  });

  test("a buffer that is detached while the kernel works does no harm", async () => {
    const { kernel } = lab();
    const batch = manyAddresses(1000);
    const done = kernel.commit([
      addTable(ref),
      { op: "add", kind: "set", ...ref, ...addresses("s") },
      elements("add", ref, "s", batch),
    ]);
    detach(batch.bytes);
    await done;
    // A dump may contain an element twice while the kernel's hash still grows.
    const { bytes } = await kernel.elements(ref, addresses("s"));
    const keys = Array.from({ length: bytes.length / 4 }, (_, i) => bytes.subarray(4 * i, 4 * i + 4).join("."));
    expect(new Set(keys).size).toBe(1000);
    await kernel.commit([{ op: "delete", kind: "table", ...ref }]);
  });

  test("a getter that reads the batch again is rejected", () => {
    const addon = loadAddon();
    const holder: { batch?: ReturnType<typeof addon.createBatch> } = {};
    const trap = {
      op: "add",
      kind: "table",
      family: "ip",
      get table(): string {
        if (holder.batch !== undefined) addon.prepareBatch(holder.batch, 1000);
        return "t";
      },
    } as const;
    holder.batch = addon.createBatch([trap]);
    const { batch } = holder;
    expect(() => addon.prepareBatch(batch, 1000)).toThrow("the batch is in use or was already committed");
  });
});
