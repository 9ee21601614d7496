import { describe, expect, test } from "vitest";
import { DATA_VERDICT, SetFlag } from "../../src/nft/kernel/constants.js";
import type { Expr, ObjectData, Op, SetInfo } from "../../src/nft/kernel/kernel.js";
import { addresses, addSet, addTable, elements, ip, manyAddresses } from "./lab.js";
import { everyExpr, everyObject } from "./samples.js";
import { type DecodedMessage, testAddon as addon } from "./test-addon.js";

const ref = ip("t");

/** The messages of a batch between its begin and its end. */
function messages(ops: readonly Op[]): DecodedMessage[] {
  const all = addon.decodeMessages(addon.encodeBatch(ops));
  expect(all.map(({ kind }) => kind)).toEqual(["begin", ...all.slice(1, -1).map(({ kind }) => kind), "end"]);
  return all.slice(1, -1);
}
const only = (op: Op): Readonly<Record<string, unknown>> => {
  const [message, ...more] = messages([op]);
  expect(more).toEqual([]);
  return message.body;
};

/** A netlink attribute, padded. */
function attribute(type: number, data: Buffer): Buffer {
  const bytes = Buffer.alloc((4 + data.length + 3) & ~3);
  bytes.writeUInt16LE(4 + data.length, 0);
  bytes.writeUInt16LE(type, 2);
  data.copy(bytes, 4);
  return bytes;
}

/** The attributes of each message, as bytes. */
function* bodiesOf(bytes: Uint8Array): Generator<Buffer> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < buffer.length; at += (buffer.readUInt32LE(at) + 3) & ~3)
    yield buffer.subarray(at + 20, at + buffer.readUInt32LE(at));
}

describe("named objects", () => {
  const add = (objType: number, data: ObjectData): Op => ({
    op: "add",
    kind: "object",
    ...ref,
    object: "o",
    objType,
    data,
  });

  test.each(everyObject)("type %s", (objType, data) => {
    const userdata = Uint8Array.of(0, 2, 0x78, 0);
    expect(only({ ...add(objType, data), userdata } as Op)).toMatchObject({ object: "o", objType, data, userdata });
  });

  test.each(everyObject.filter(([, { type }]) => type !== "opaque"))(
    "type %s keeps unknown attributes",
    (objType, data) => {
      const more = { ...data, extra: [{ type: 99, bytes: Uint8Array.of(1, 2, 3) }] };
      expect(only(add(objType, more))["data"]).toEqual(more);
    },
  );

  test("data of another form is kept unchanged", () => {
    // NFTA_CT_TIMEOUT_L4PROTO, then NFTA_CT_TIMEOUT_DATA with one attribute of one byte.
    const data = Uint8Array.of(5, 0, 2, 0, 6, 0, 0, 0, 12, 0, 3, 0x80, 5, 0, 1, 0, 9, 0, 0, 0);
    const opaque: ObjectData = { type: "opaque", name: "ct timeout", data };
    expect(only(add(7, opaque))["data"]).toEqual(opaque);
  });

  test("a removal has no data", () => {
    const body = only({ op: "delete", kind: "object", ...ref, object: "o", objType: 1 });
    expect(body).toMatchObject({ object: "o", objType: 1, data: { type: "counter" } });
  });

  test.each([
    [2, { type: "counter" }, /"counter" is not the data of object type 2/],
    [11, { type: "counter" }, /not the data of object type 11/],
    [3, { type: "ct helper", l4proto: 6 }, /data\.name/],
    [7, { type: "ct timeout", l4proto: 6, timeouts: new Array(33).fill(1) }, /timeouts/],
    [1, undefined, /data/],
  ])("type %s refuses %j", (objType, data, message) => {
    expect(() => messages([add(objType, data as ObjectData)])).toThrow(message);
  });

  test("an element refers to its object, and has a comment", () => {
    const userdata = Uint8Array.of(0, 2, 0x78, 0);
    const extras = [
      { record: 1, object: "b", userdata },
      { record: 0, object: "a" },
    ];
    const set: SetInfo = { set: "m", flags: SetFlag.object, objType: 1, keyType: 7, keyLen: 4 };
    const batch = { ...manyAddresses(2), extras };
    const bytes = addon.encodeBatch([{ op: "add", kind: "elements", ...ref, set: "m", elements: batch }]);
    expect(addon.decodeElements(set, bytes).extras).toEqual([extras[1], extras[0]]);
  });
});

describe("expressions", () => {
  test.each(
    everyExpr.map((expr) => [JSON.stringify(expr, (_, v: unknown) => (typeof v === "bigint" ? `${v}n` : v)), expr]),
  )("%s", (_, expr) => {
    const rule = only({ op: "add", kind: "rule", ...ref, chain: "c", exprs: [expr] });
    expect(rule["exprs"]).toEqual([expr]);
  });

  test("all in one rule keep their order", () => {
    expect(only({ op: "add", kind: "rule", ...ref, chain: "c", exprs: everyExpr })["exprs"]).toEqual(everyExpr);
  });

  test.each(everyExpr.filter(({ type }) => type !== "opaque"))("$type keeps unknown attributes", (expr) => {
    const extra = [
      { type: 99, bytes: Uint8Array.of(1, 2, 3) },
      { type: 0x8000 | 98, bytes: Uint8Array.of(5, 0, 1, 0, 7) },
      { type: 97, bytes: new Uint8Array() },
    ];
    const more = { ...expr, extra };
    expect(only({ op: "add", kind: "rule", ...ref, chain: "c", exprs: [more] })["exprs"]).toEqual([more]);
  });

  test("a known attribute of an unknown form is kept unchanged", () => {
    // NFTA_META_KEY of two bytes.
    const meta = { type: "opaque", name: "meta", data: Uint8Array.of(6, 0, 2, 0, 1, 2, 0, 0) } as const;
    expect(only({ op: "add", kind: "rule", ...ref, chain: "c", exprs: [meta] })["exprs"]).toEqual([meta]);
    // An optional attribute: NFTA_COUNTER_PACKETS of four bytes.
    const counter: Expr = { type: "opaque", name: "counter", data: Uint8Array.of(8, 0, 2, 0, 1, 2, 3, 4) };
    expect(only({ op: "add", kind: "rule", ...ref, chain: "c", exprs: [counter] })["exprs"]).toEqual([
      { type: "counter", extra: [{ type: 2, bytes: Uint8Array.of(1, 2, 3, 4) }] },
    ]);
  });

  test("a repeated attribute is kept twice", () => {
    const data = Uint8Array.of(8, 0, 1, 0, 0, 0, 0, 1, 8, 0, 1, 0, 0, 0, 0, 2);
    const exprs: Expr[] = [{ type: "opaque", name: "masq", data }];
    expect(only({ op: "add", kind: "rule", ...ref, chain: "c", exprs })["exprs"]).toEqual([
      { type: "masq", flags: 1, extra: [{ type: 1, bytes: Uint8Array.of(0, 0, 0, 2) }] },
    ]);
  });

  test("a verdict without a name is opaque", () => {
    // NFTA_IMMEDIATE_DREG 0, NFTA_IMMEDIATE_DATA { NFTA_DATA_VERDICT { NFTA_VERDICT_CODE 77 } }.
    const data = Uint8Array.of(8, 0, 1, 0, 0, 0, 0, 0, 16, 0, 2, 128, 12, 0, 2, 128, 8, 0, 1, 0, 0, 0, 0, 77);
    const odd: Expr = { type: "opaque", name: "immediate", data };
    expect(only({ op: "add", kind: "rule", ...ref, chain: "c", exprs: [odd] })["exprs"]).toEqual([odd]);
  });
});

describe("operations", () => {
  const userdata = Uint8Array.from({ length: 256 }, (_, i) => i);
  const [NEW, CREATE, EXCL, APPEND, REPLACE] = [10 << 8, 0x400, 0x200, 0x800, 0x100];

  test("table", () => {
    const [add, create, remove, destroy] = messages([
      { op: "add", kind: "table", family: "inet", table: "t", flags: 3, userdata },
      { op: "create", kind: "table", family: "netdev", table: "t" },
      { op: "delete", kind: "table", family: "bridge", table: "t", handle: 2n ** 63n },
      { op: "destroy", kind: "table", family: "arp", table: "t" },
    ]);
    expect(add).toMatchObject({ type: NEW, body: { family: "inet", table: "t", flags: 3, userdata } });
    expect(create).toMatchObject({ type: NEW, body: { family: "netdev" } });
    expect(remove).toMatchObject({ type: NEW + 2, body: { family: "bridge", handle: 2n ** 63n } });
    expect(destroy).toMatchObject({ type: NEW + 26, body: { family: "arp" } });
    expect(add.flags & (CREATE | EXCL)).toBe(CREATE);
    expect(create.flags & (CREATE | EXCL)).toBe(CREATE | EXCL);
    expect(remove.flags & (CREATE | EXCL)).toBe(0);
  });

  test("chain", () => {
    const base = {
      type: "filter",
      hook: 0,
      priority: -2147483648,
      policy: "drop",
      devices: ["a", "b".repeat(15)],
    } as const;
    const [add, one] = messages([
      { op: "add", kind: "chain", ...ref, chain: "c".repeat(255), base, userdata },
      { op: "add", kind: "chain", ...ref, chain: "c", base: { ...base, policy: "accept", devices: ["a"] } },
    ]);
    expect(add.body).toMatchObject({ chain: "c".repeat(255), base, userdata });
    expect(one.body).toMatchObject({ base: { policy: "accept", devices: ["a"] } });
  });

  test("rule", () => {
    const rule = { kind: "rule", ...ref, chain: "c" } as const;
    const [add, insert, replace, remove, flush, flushAll] = messages([
      { op: "add", ...rule, exprs: [], position: 7n, userdata },
      { op: "insert", ...rule, exprs: [] },
      { op: "replace", ...rule, exprs: [], handle: 9n },
      { op: "delete", ...rule, handle: 9n },
      { op: "flush", ...rule },
      { op: "flush", kind: "rule", ...ref },
    ]);
    expect(add.body).toMatchObject({ chain: "c", position: 7n, userdata });
    expect(add.flags & (CREATE | APPEND)).toBe(CREATE | APPEND);
    expect(insert.flags & (CREATE | APPEND)).toBe(CREATE);
    expect(replace).toMatchObject({ type: NEW + 6, body: { handle: 9n } });
    expect(replace.flags & REPLACE).toBe(REPLACE);
    expect(remove).toMatchObject({ type: NEW + 8, body: { handle: 9n } });
    expect(flush).toMatchObject({ type: NEW + 8, body: { chain: "c", handle: 0n } });
    expect(flushAll).toMatchObject({ type: NEW + 8, body: { chain: "" } });
  });

  test("set", () => {
    const info: SetInfo = {
      set: "s",
      flags: SetFlag.map | SetFlag.interval | SetFlag.concat | SetFlag.timeout,
      keyType: 0xabc,
      keyLen: 8,
      dataType: 7,
      dataLen: 4,
      size: 1000,
      timeout: 2n ** 40n,
      gcInterval: 5,
      policy: 1,
      fieldLens: [4, 2],
      exprs: [{ type: "counter" }],
      userdata,
    };
    expect(only({ op: "create", kind: "set", ...ref, ...info, id: 77 })).toMatchObject({ ...info, id: 77 });
    const two: SetInfo = { ...info, exprs: [{ type: "counter" }, { type: "last" }] };
    expect(only({ op: "add", kind: "set", ...ref, ...two })).toMatchObject(two);
    const vmap = addresses("v", { flags: SetFlag.map, dataType: DATA_VERDICT });
    expect(only(addSet(ref, vmap))).toMatchObject(vmap);
  });

  test("flowtable", () => {
    const flowtable = { kind: "flowtable", ...ref, flowtable: "f" } as const;
    const [add, devices, whole] = messages([
      { op: "add", ...flowtable, priority: -5, flags: 2, devices: ["eth0", "a-name-of-15-by"] },
      { op: "delete", ...flowtable, priority: 0, devices: ["eth0"] },
      { op: "delete", ...flowtable },
    ]);
    expect([add.type, devices.type, whole.type]).toEqual([NEW + 22, NEW + 24, NEW + 24]);
    const text = (type: number, value: string): Buffer => attribute(type, Buffer.from(`${value}\0`));
    const number = (type: number, value: number): Buffer => {
      const bytes = Buffer.alloc(4);
      bytes.writeInt32BE(value);
      return attribute(type, bytes);
    };
    const hook = (priority: number, ...names: readonly string[]): Buffer => {
      const list = attribute(0x8000 | 3, Buffer.concat(names.map((name) => text(1, name))));
      return attribute(0x8000 | 3, Buffer.concat([number(1, 0), number(2, priority), list]));
    };
    const named = [text(1, ref.table), text(2, "f")];
    const sent = addon.encodeBatch([
      { op: "add", ...flowtable, priority: -5, flags: 2, devices: ["eth0", "a-name-of-15-by"] },
      { op: "delete", ...flowtable, priority: 0, devices: ["eth0"] },
      { op: "delete", ...flowtable },
    ]);
    // After each message's headers of 16 and 4 bytes.
    const bodies = [...bodiesOf(sent)].slice(1, -1).map((body) => body.toString("hex"));
    expect(bodies).toEqual(
      [[...named, hook(-5, "eth0", "a-name-of-15-by"), number(7, 2)], [...named, hook(0, "eth0")], named].map((parts) =>
        Buffer.concat(parts).toString("hex"),
      ),
    );
  });

  test("the removal of a named object", () => {
    const object = { kind: "object", ...ref, object: "o", objType: 2 } as const;
    const [remove, destroy] = messages([
      { op: "delete", ...object },
      { op: "destroy", ...object },
    ]);
    expect([remove.type, destroy.type]).toEqual([NEW + 20, NEW + 31]);
    const [, body] = [...bodiesOf(addon.encodeBatch([{ op: "delete", ...object }]))];
    const named = [attribute(1, Buffer.from(`${ref.table}\0`)), attribute(2, Buffer.from("o\0"))];
    expect(body.toString("hex")).toBe(Buffer.concat([...named, attribute(3, Buffer.of(0, 0, 0, 2))]).toString("hex"));
    expect(() => addon.encodeBatch([{ op: "add", ...object } as unknown as Op])).toThrow(/data: expected an object/);
  });

  test("sets without an id get different ones", () => {
    const ids = messages([addSet(ref, addresses("a")), addSet(ref, addresses("b"))]).map(({ body }) => body["id"]);
    expect(new Set(ids).size).toBe(2);
  });

  test("only the last operation asks for an acknowledgement", () => {
    const ACK = 4;
    const flags = messages([addTable(ref), addTable(ip("u")), addTable(ip("v"))]).map((message) => message.flags & ACK);
    expect(flags).toEqual([0, 0, ACK]);
  });

  test("a dry run has no end message, and an expected generation is in the begin message", () => {
    const dry = addon.decodeMessages(addon.encodeBatch([addTable(ref)], { dryRun: true }));
    expect(dry.map(({ kind }) => kind)).toEqual(["begin", "table"]);
    const plain = addon.encodeBatch([addTable(ref)]);
    const guarded = addon.encodeBatch([addTable(ref)], { expectGeneration: 0x01020304 });
    // NFNL_BATCH_GENID takes 8 bytes after the begin's headers.
    expect(guarded.length).toBe(plain.length + 8);
    expect([...guarded.subarray(20, 28)]).toEqual([8, 0, 1, 0, 1, 2, 3, 4]);
  });
});

describe("elements", () => {
  const host = (value: number): number[] => [...new Uint8Array(Uint32Array.of(value).buffer)];
  const host64 = (value: bigint): number[] => [...new Uint8Array(BigUint64Array.of(value).buffer)];

  test("all columns are encoded", () => {
    const bytes = Uint8Array.from([
      ...[1, 2, 3, 4, 5, 6, 7, 8, ...host(0), ...host(0), ...host64(0n), ...host64(0n)],
      ...[9, 9, 9, 9, 8, 8, 8, 8, ...host(1), ...host(2), ...host64(77n), ...host64(2n ** 63n)],
      ...[9, 9, 9, 9, 8, 8, 8, 8, ...host(1), ...host(1), ...host64(77n), ...host64(5n)],
    ]);
    const verdicts = [{ verdict: "accept" }, { verdict: "goto", chain: "there" }] as const;
    const batch = {
      count: 3,
      keyLen: 4,
      keyEnd: true,
      dataLen: 4,
      verdicts,
      flags: true,
      timeouts: true,
      expirations: true,
      bytes,
    };
    expect(only(elements("add", ref, "s", batch))).toEqual({
      table: "t",
      set: "s",
      elements: [
        { key: Uint8Array.of(1, 2, 3, 4), keyEnd: Uint8Array.of(5, 6, 7, 8), data: verdicts[0] },
        // A catch-all element has no key.
        { flags: 2, data: verdicts[1], timeout: 77n, expiration: 2n ** 63n },
        // The end of an interval has only a key.
        { key: Uint8Array.of(9, 9, 9, 9), keyEnd: Uint8Array.of(8, 8, 8, 8), flags: 1 },
      ],
    });
  });

  test("odd lengths are padded with zeros", () => {
    const bytes = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
    expect(only(elements("add", ref, "s", { count: 1, keyLen: 5, dataLen: 3, bytes }))["elements"]).toEqual([
      { key: Uint8Array.of(1, 2, 3, 4, 5), data: Uint8Array.of(6, 7, 8) },
    ]);
  });

  test("a removal names only keys, whatever else the records contain", () => {
    const bytes = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
    expect(only(elements("delete", ref, "s", { count: 1, keyLen: 4, dataLen: 4, bytes }))["elements"]).toEqual([
      { key: Uint8Array.of(1, 2, 3, 4) },
    ]);
  });

  test("a batch without records sends no message: a removal without elements would empty the set", () => {
    expect(messages([elements("delete", ref, "s", manyAddresses(0))])).toEqual([]);
    expect(messages([{ op: "flush", kind: "elements", ...ref, set: "s" }])[0].body).toEqual({ table: "t", set: "s" });
  });

  test("many records are split below 64 KiB, without losing or repeating any", () => {
    const count = 20_000;
    const parts = messages([elements("add", ref, "s", manyAddresses(count)), addTable(ref)]);
    expect(parts.length).toBeGreaterThan(5);
    const keys = parts.slice(0, -1).flatMap(({ body }) => body["elements"] as { key: Uint8Array }[]);
    expect(keys).toHaveLength(count);
    keys.forEach(({ key }, i) => expect(Buffer.from(key).readUInt32BE()).toBe(0x0a000000 + i));
  });

  test.each([1, 2, 3, 63, 64])("keys of %i bytes, several operations in one region", (keyLen) => {
    const count = 3000;
    const make = (seed: number): Uint8Array => Uint8Array.from({ length: count * keyLen }, (_, i) => (i * seed) >> 3);
    const [a, b] = [make(3), make(5)];
    const found = messages([
      elements("add", ref, "a", { count, keyLen, dataLen: 0, bytes: a }),
      addTable(ref),
      elements("delete", ref, "b", { count, keyLen, dataLen: 0, bytes: b }),
    ]);
    const keysOf = (set: string): Buffer =>
      Buffer.concat(
        found
          .filter(({ body }) => body["set"] === set)
          .flatMap(({ body }) => (body["elements"] as { key: Uint8Array }[]).map(({ key }) => key)),
      );
    expect(keysOf("a").equals(a)).toBe(true);
    expect(keysOf("b").equals(b)).toBe(true);
  });

  test("the buffers of a batch may change as soon as it is encoded", () => {
    const batch = manyAddresses(10);
    const encoded = addon.encodeBatch([elements("add", ref, "s", batch)]);
    const copy = Uint8Array.from(encoded);
    batch.bytes.fill(0xff);
    expect(encoded).toEqual(copy);
  });
});
