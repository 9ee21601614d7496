import { describe, expect, test } from "vitest";
import { ProtocolError, StatusError } from "../../../../src/objects/kubernetes/errors.js";
import {
  ListBody,
  type ListMeta,
  type ObjectType,
  WatchBody,
  type WatchEvent,
} from "../../../../src/objects/kubernetes/bodies.js";

/** Yields all ways to split a text into two, and into pieces of 1, 2, 3, 5 and 7 bytes. */
function* cuts(text: string): Generator<Buffer[]> {
  const bytes = Buffer.from(text);
  for (let at = 0; at <= bytes.length; at++) yield [bytes.subarray(0, at), bytes.subarray(at)];
  for (const size of [1, 2, 3, 5, 7]) {
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
    yield pieces;
  }
}

const SERVICES: ObjectType = { kind: "Service", apiVersion: "v1" };
const TYPE = { kind: "ServiceList", apiVersion: "v1" };

function readList(pieces: readonly Buffer[]): { items: unknown[]; meta: ListMeta } {
  const body = new ListBody(SERVICES, "JSON");
  const items = pieces.flatMap((piece) => [...body.push(piece)]);
  return { items, meta: body.end() };
}

describe("a list in pieces", () => {
  const ITEMS = [
    { metadata: { name: 'quo"te\\', labels: { items: "[{" } }, spec: { list: [[1], { a: [] }], text: "}],{" } },
    { metadata: { name: "ümläut €𐍈" }, empty: {}, none: [] },
    {},
  ];
  const META = { resourceVersion: "12", continue: "abc", remainingItemCount: 5 };
  const EXPECTED = { resourceVersion: "12", continue: "abc", remaining: 5 };

  test.each([
    ["as Go writes it", JSON.stringify({ ...TYPE, metadata: META, items: ITEMS })],
    ["indented", JSON.stringify({ ...TYPE, metadata: META, items: ITEMS }, null, 2)],
    [
      "with another list before",
      JSON.stringify({ other: [1, [2]], ...TYPE, metadata: META, items: ITEMS, more: [{}] }),
    ],
  ])("%s: it can be split anywhere", (_how, text) => {
    for (const pieces of cuts(`${text}\n`)) expect(readList(pieces)).toEqual({ items: ITEMS, meta: EXPECTED });
  });

  test("a list with sorted fields, whose items name their kind, is read", () => {
    const items = ITEMS.map((item) => ({ apiVersion: "v1", kind: "Service", ...item }));
    const text = JSON.stringify({ apiVersion: "v1", items, kind: "ServiceList", metadata: META });
    for (const pieces of cuts(text)) expect(readList(pieces)).toEqual({ items, meta: EXPECTED });
  });

  test("an empty list is read, and one whose items are null", () => {
    for (const items of ["[]", "null", "[ ]"]) {
      const text = `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":${items}}`;
      const meta = { resourceVersion: "7", continue: "", remaining: undefined };
      for (const pieces of cuts(text)) expect(readList(pieces)).toEqual({ items: [], meta });
    }
  });

  test("an incomplete list is refused, wherever it breaks off", () => {
    const text = JSON.stringify({ ...TYPE, metadata: META, items: ITEMS });
    for (let at = 0; at < Buffer.byteLength(text); at++) {
      expect(() => readList([Buffer.from(text).subarray(0, at)])).toThrow(ProtocolError);
    }
  });

  test.each([
    "<html></html>",
    '"text"',
    "[]",
    '{"a":1}',
    "{}}",
    '{"metadata":{},"items":[{]}',
    '{"metadata":{},"items":[{}{}]}',
    '{"metadata":{},"items":[{},]}',
    '{"metadata":{},"items":[,{}]}',
    '{"metadata":{},"items":[{}x,{}]}',
    '{"metadata":{},"items":[1]}',
    '{"metadata":{},"items":[{}],"items":[]}',
    '{"metadata":{},"items":[{}],"items":null}',
  ])("%s is not a list", (text) => {
    const typed = text.replace('{"metadata"', '{"kind":"ServiceList","apiVersion":"v1","metadata"');
    for (const pieces of cuts(typed)) expect(() => readList(pieces)).toThrow(ProtocolError);
  });

  test.each<[string, object, RegExp]>([
    ["of Pods", { kind: "PodList", apiVersion: "v1", items: ITEMS }, /not a ServiceList of v1: its kind is "PodList"/],
    ["of Pods, empty", { kind: "PodList", apiVersion: "v1", items: [] }, /its kind is "PodList"/],
    [
      "of another group",
      { kind: "ServiceList", apiVersion: "serving.knative.dev/v1", items: ITEMS },
      /its apiVersion is/,
    ],
    ["without a kind", { apiVersion: "v1", items: [] }, /its kind is missing/],
    [
      "without a kind, with items",
      { apiVersion: "v1", items: ITEMS },
      /an item of the list is not a Service of v1: its kind is missing/,
    ],
    [
      "with a Pod",
      { ...TYPE, items: [{ kind: "Pod", apiVersion: "v1" }] },
      /an item of the list is not a Service of v1: its kind is "Pod"/,
    ],
    ["that is a Table", { kind: "Table", apiVersion: "meta.k8s.io/v1", rows: [] }, /its kind is "Table"/],
    ["without items", TYPE, /its field items is missing/],
    ["whose items are an object", { ...TYPE, items: {} }, /its field items is not a list of objects/],
    ["without any description", {}, /its kind is missing/],
  ])("a list %s is refused before any item is passed on", (_what, list, message) => {
    const text = JSON.stringify({ metadata: META, ...list });
    for (const pieces of cuts(text)) {
      const body = new ListBody(SERVICES, "JSON");
      const seen: unknown[] = [];
      const read = () => {
        for (const piece of pieces) for (const item of body.push(piece)) seen.push(item);
        body.end();
      };
      expect(read).toThrow(ProtocolError);
      expect(read).toThrow();
      expect(seen).toEqual([]);
    }
    expect(() => readList([Buffer.from(text)])).toThrow(message);
  });

  test.each([
    ["an item", '{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"'],
    ["a field next to the items", '{"kind":"'],
  ])("%s of more than 8 MiB is refused while it arrives", (_what, beginning) => {
    const body = new ListBody(SERVICES, "JSON");
    const chunk = Buffer.alloc(1 << 20, "x");
    const read = (chunks: number) => {
      for (let i = 0; i < chunks; i++) for (const _ of body.push(chunk));
    };
    for (const _ of body.push(Buffer.from(beginning)));
    read(7);
    expect(() => read(2)).toThrow(/^a value in the list exceeds 8 MiB, more than any object can have$/);
  });

  test("a list of many objects may be larger than the maximum of one object", () => {
    const body = new ListBody(SERVICES, "JSON");
    const item = Buffer.from(JSON.stringify({ metadata: { name: "x".repeat(1 << 20) } }));
    const read = (text: Buffer | string) => [...body.push(Buffer.from(text))].length;
    expect(read('{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[')).toBe(0);
    for (let i = 0; i < 20; i++) expect(read(item) + read(",")).toBe(1);
    expect(read(item)).toBe(1);
    expect(read("]}")).toBe(0);
    expect(body.end().resourceVersion).toBe("1");
  });
});

describe("a watch in pieces", () => {
  const EVENTS: readonly WatchEvent[] = [
    { type: "ADDED", object: { ...SERVICES, metadata: { name: "ü\n€" } } },
    { type: "BOOKMARK", object: { ...SERVICES, metadata: { resourceVersion: "9" } } },
    { type: "DELETED", object: { ...SERVICES } },
  ];

  test("events can be split anywhere, with or without empty lines", () => {
    for (const separator of ["\n", "\r\n", "\n\n"]) {
      const text = EVENTS.map((event) => JSON.stringify(event) + separator).join("");
      for (const pieces of cuts(text)) {
        const body = new WatchBody(SERVICES, "JSON");
        expect(pieces.flatMap((piece) => [...body.push(piece)])).toEqual(EVENTS);
        expect(body.midEvent).toBe(false);
      }
    }
  });

  test("an incomplete event is not delivered", () => {
    const body = new WatchBody(SERVICES, "JSON");
    expect([...body.push(Buffer.from('{"type":"ADDED"'))]).toEqual([]);
    expect(body.midEvent).toBe(true);
  });

  test("an ERROR event is an error with the code of its Status, and earlier events count", () => {
    const body = new WatchBody(SERVICES, "JSON");
    const status = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version: 1 (2)" };
    const events = body.push(
      Buffer.from(`${JSON.stringify(EVENTS[0])}\n${JSON.stringify({ type: "ERROR", object: status })}\n`),
    );
    expect(events.next().value).toEqual(EVENTS[0]);
    expect(() => events.next()).toThrow(
      expect.objectContaining({ status: 410, reason: "Expired", message: status.message }) as StatusError,
    );
    expect(() => [...new WatchBody(SERVICES, "JSON").push(Buffer.from('{"type":"ERROR"}\n'))]).toThrow(StatusError);
  });

  test.each(["no JSON", "7", "null", '{"type":"OTHER"}', "[]"])("%s is not an event", (line) => {
    expect(() => [...new WatchBody(SERVICES, "JSON").push(Buffer.from(`${line}\n`))]).toThrow(ProtocolError);
  });

  test.each([
    [{ kind: "Pod", apiVersion: "v1" }, /the object of an event is not a Service of v1: its kind is "Pod"/],
    [{ kind: "Service" }, /its apiVersion is missing/],
    [undefined, /its kind is missing/],
  ])("an event with the object %j is refused", (object, message) => {
    for (const type of ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]) {
      const line = Buffer.from(`${JSON.stringify({ type, object })}\n`);
      expect(() => [...new WatchBody(SERVICES, "JSON").push(line)]).toThrow(ProtocolError);
      expect(() => [...new WatchBody(SERVICES, "JSON").push(line)]).toThrow(message);
    }
  });

  test("an event of more than 8 MiB is refused while it arrives, however it is split", () => {
    const body = new WatchBody(SERVICES, "JSON");
    const chunk = Buffer.alloc(1 << 20, "x");
    expect([...body.push(Buffer.from('{"type":"'))]).toEqual([]);
    for (let i = 0; i < 7; i++) expect([...body.push(chunk)]).toEqual([]);
    expect(() => [...body.push(chunk)]).toThrow(/^an event of a watch exceeds 8 MiB, more than any object/);
    const line = Buffer.concat([Buffer.alloc(9 << 20, "x"), Buffer.from("\n")]);
    expect(() => [...new WatchBody(SERVICES, "JSON").push(line)]).toThrow(/exceeds 8 MiB/);
  });
});
