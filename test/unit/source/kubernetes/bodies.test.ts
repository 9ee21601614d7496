import { describe, expect, test } from "vitest";
import { ProtocolError, StatusError } from "../../../../src/source/kubernetes/errors.js";
import { ListBody, type ListMeta, WatchBody, type WatchEvent } from "../../../../src/source/kubernetes/bodies.js";

/** All ways to cut a text into two, and into pieces of 1, 2, 3, 5 and 7 bytes. */
function* cuts(text: string): Generator<Buffer[]> {
  const bytes = Buffer.from(text);
  for (let at = 0; at <= bytes.length; at++) yield [bytes.subarray(0, at), bytes.subarray(at)];
  for (const size of [1, 2, 3, 5, 7]) {
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
    yield pieces;
  }
}

function readList(pieces: readonly Buffer[]): { items: unknown[]; meta: ListMeta } {
  const body = new ListBody();
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
    ["as Go writes it", JSON.stringify({ kind: "ServiceList", apiVersion: "v1", metadata: META, items: ITEMS })],
    ["indented", JSON.stringify({ kind: "ServiceList", metadata: META, items: ITEMS }, null, 2)],
    ["with the items first", JSON.stringify({ items: ITEMS, metadata: META, kind: "ServiceList" })],
    ["with another list before", JSON.stringify({ other: [1, [2]], metadata: META, items: ITEMS, more: [{}] })],
  ])("%s, however it is cut", (_how, text) => {
    for (const pieces of cuts(`${text}\n`)) expect(readList(pieces)).toEqual({ items: ITEMS, meta: EXPECTED });
  });

  test("an empty one, and one whose items are null", () => {
    for (const items of ["[]", "null", "[ ]"]) {
      const text = `{"metadata":{"resourceVersion":"7"},"items":${items}}`;
      const meta = { resourceVersion: "7", continue: "", remaining: undefined };
      for (const pieces of cuts(text)) expect(readList(pieces)).toEqual({ items: [], meta });
    }
  });

  test("one that breaks off is no list, wherever it does", () => {
    const text = JSON.stringify({ metadata: META, items: ITEMS });
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
  ])("%s is no list", (text) => {
    for (const pieces of cuts(text)) expect(() => readList(pieces)).toThrow(ProtocolError);
  });
});

describe("a watch in pieces", () => {
  const EVENTS: readonly WatchEvent[] = [
    { type: "ADDED", object: { metadata: { name: "ü\n€" } } },
    { type: "BOOKMARK", object: { metadata: { resourceVersion: "9" } } },
    { type: "DELETED", object: {} },
  ];

  test("however it is cut, with or without empty lines", () => {
    for (const separator of ["\n", "\r\n", "\n\n"]) {
      const text = EVENTS.map((event) => JSON.stringify(event) + separator).join("");
      for (const pieces of cuts(text)) {
        const body = new WatchBody();
        expect(pieces.flatMap((piece) => [...body.push(piece)])).toEqual(EVENTS);
        expect(body.midLine).toBe(false);
      }
    }
  });

  test("an event that is not over is not delivered", () => {
    const body = new WatchBody();
    expect([...body.push(Buffer.from('{"type":"ADDED"'))]).toEqual([]);
    expect(body.midLine).toBe(true);
  });

  test("an ERROR event is an error with the code of its Status; events before it count", () => {
    const body = new WatchBody();
    const status = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version: 1 (2)" };
    const events = body.push(
      Buffer.from(`${JSON.stringify(EVENTS[0])}\n${JSON.stringify({ type: "ERROR", object: status })}\n`),
    );
    expect(events.next().value).toEqual(EVENTS[0]);
    expect(() => events.next()).toThrow(
      expect.objectContaining({ status: 410, reason: "Expired", message: status.message }) as StatusError,
    );
    expect(() => [...new WatchBody().push(Buffer.from('{"type":"ERROR"}\n'))]).toThrow(StatusError);
  });

  test.each(["no JSON", "7", "null", '{"type":"OTHER"}', "[]"])("%s is no event", (line) => {
    expect(() => [...new WatchBody().push(Buffer.from(`${line}\n`))]).toThrow(ProtocolError);
  });
});
