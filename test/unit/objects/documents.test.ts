import { describe, expect, test } from "vitest";
import { readDocuments as readBytes, FileFault } from "../../../src/objects/manifests/documents.js";
import { type Item, itemsOf } from "../../../src/objects/manifests/items.js";
import { countTurns } from "../../support/counted-turns.ts";

const readDocuments = (text: string, format: "json" | "yaml"): Promise<unknown[]> =>
  readBytes(Buffer.from(text), format);

async function fault(text: string, format: "json" | "yaml"): Promise<{ line?: number; column?: number }> {
  try {
    await readDocuments(text, format);
  } catch (error) {
    if (!(error instanceof FileFault)) throw error;
    expect(error.message).not.toBe("");
    return { line: error.line, column: error.column };
  }
  throw new Error(`${JSON.stringify(text)} was accepted`);
}

describe("readDocuments: JSON", () => {
  test.each<[string, unknown[]]>([
    ["", []],
    [" \n", []],
    ['{"a": 1}', [{ a: 1 }]],
    ['\ufeff{"a": 1}\n', [{ a: 1 }]],
    ['{"a": 1}\n{"b": [2, {"c": null}]}', [{ a: 1 }, { b: [2, { c: null }] }]],
    ['{}[] "x\\"}" 1.5e3 true', [{}, [], 'x"}', 1500, true]],
    ['["\u007f\u0080", "\\u00e9\\n"]', [["\u007f\u0080", "\u00e9\n"]]],
  ])("%j", async (text, values) => {
    expect(await readDocuments(text, "json")).toEqual(values);
  });

  test.each<[string, number, number]>([
    ["{", 1, 2],
    ['{\n  "a": 1,\n}', 3, 1],
    ['{\n  "a": [1 2]\n}', 2, 11],
    ['{\n  "a": nul\n}', 2, 8],
    ['{"a" 1}', 1, 6],
    ['{"a": 01}', 1, 7],
    ['{"a": "x\ny"}', 1, 7],
    ['{"a": "\\x"}', 1, 7],
    ["[1,]", 1, 4],
    ["[1}", 1, 3],
    ['{"a": {"b": 1,\n "c": [{}],\n "b": 2}}', 3, 2],
    ['{"a": 1} {"a": ":", "\\u0061": 2}', 1, 21],
    ["{]", 1, 2],
    ["{} ]", 1, 4],
    ["{1: 2}", 1, 2],
    ['{"a": 1}\n---\n{"b": 2}', 2, 1],
    [`${"[".repeat(200_000)}x`, 1, 200_001],
  ])("%j is wrong at line %i, column %i", async (text, line, column) => {
    expect(await fault(text, "json")).toEqual({ line, column });
  });
});

test("a repeated key in an item of a large JSON file is found, too", async () => {
  const items = [`{"n": "${"x".repeat(300_000)}"}`, '{"a": {"b:": "\\":"}}', '{"a":\n{"b": 1, "b": 2}}'];
  expect(await fault(`{"items": [\n${items.join(",\n")}]}`, "json")).toEqual({ line: 5, column: 10 });
});

/** Longer than the text that is parsed at once. */
const LONG = "x".repeat(300_000);

describe("readDocuments: JSON of a large file", () => {
  test.each<[string, string, unknown[]]>([
    ["a list", `{"kind": "List", "items": [{"a": "${LONG}"}, {"b": [1, {"c": "]}\\""}]}] , "z": {} }`, [2]],
    ["its items first", `{"items":[{"a":"${LONG}"}],"kind":"List"}`, [1]],
    ["an empty one", `{"a": "${LONG}", "items": [ ]}`, [0]],
    ["items of any kind", `{"items":[{"a":"${LONG}"}, 5, null]}`, [3]],
    ["a field of that name further inside", `{"a":{"items":[1,2]},"b":"\\\\","items":[{"a":"${LONG}"}]}`, [1]],
    ["a field of that name that is no list", `{"items":"${LONG}"}`, [300_000]],
    ["non-ASCII text", `{"\u00e9": "\u20ac", "items":[{"a":"${LONG}\u00e9\u20ac\u{1f600}"}], "\u00e8": 1}`, [1]],
    ["with a byte order mark", `\ufeff{"items":[{"a":"${LONG}"}]}`, [1]],
    ["several values", `{"items":[{"a":"${LONG}"}]}\n{"items":[]}`, [1, 0]],
  ])("%s", async (_what, text, lengths) => {
    const values = (await readDocuments(text, "json")) as { items: unknown[] }[];
    expect(values.map(({ items }) => items.length)).toEqual(lengths);
    if (values.length === 1) expect(values).toEqual([JSON.parse(text.replace("\ufeff", ""))]);
  });

  test.each<[string, string, number]>([
    ["an extra comma", `{"items":[{"a":"${LONG}"},]}`, 300_020],
    ["a missing comma", `{"items":[{"a":"${LONG}"} {}]}`, 300_020],
    ["a wrong item", `{"items":[{"a":"${LONG}"},{"b":}]}`, 300_025],
    ["no end", `{"items":[{"a":"${LONG}"}`, 300_019],
    ["an extra closing bracket", `{"items":[{"a":"${LONG}"}]]}`, 300_020],
    ["two fields with that name", `{"items":[{"a":"${LONG}"}],"items":[{},{},{}]}`, 300_021],
    ["a malformed frame", `{"a" 1, "items":[{"a":"${LONG}"}]}`, 6],
    ["a string without end", `{"items":[{"a":"${LONG}`, 16],
  ])("%s", async (_what, text, column) => {
    expect(await fault(text, "json")).toEqual({ line: 1, column });
  });

  test("the event loop stays responsive", async () => {
    const item = JSON.stringify({ a: { b: Array.from({ length: 20 }, (_, i) => ({ name: `${i}` })) } });
    const text = `{"items":[${Array(10_000).fill(item).join()}]}`;
    const { turns, mostLooks } = await countTurns(() => readDocuments(text, "json"));
    // At least a look after each item. The first slice begins twice.
    expect(mostLooks).toBeLessThanOrEqual(6);
    expect(turns).toBeGreaterThan(10_000 / 5);
  });
});

describe("readDocuments: YAML", () => {
  test.each<[string, unknown[]]>([
    ["", []],
    ["# nothing\n---\n---\n", []],
    ["a: 1\n---\nb: [x, 010.0.0.1]\n", [{ a: 1 }, { b: ["x", "010.0.0.1"] }]],
    ['{"a": {"b": true}}', [{ a: { b: true } }]],
    ["a: &x {n: 1}\nb: *x\nc: {<<: *x, m: 2}", [{ a: { n: 1 }, b: { n: 1 }, c: { n: 1, m: 2 } }]],
    ["1: one", [{ "1": "one" }]],
  ])("%j", async (text, values) => {
    expect(await readDocuments(text, "yaml")).toEqual(values);
  });

  test.each<[string, number, number]>([
    ["a: 1\nb: [1\nc: 2", 3, 1],
    ["a: 1\n---\nb:\n\t- 1", 4, 1],
    ["a: 1\na: 2", 2, 1],
    ["a: *nowhere", 1, 1],
    ["- &a [*a]", 1, 1],
    ['a: "open', 1, 9],
    ["? [a]\n: 1", 1, 3],
  ])("%j is wrong at line %i, column %i", async (text, line, column) => {
    expect(await fault(text, "yaml")).toEqual({ line, column });
  });

  test("an expansion bomb is refused", async () => {
    const levels = Array.from({ length: 9 }, (_, i) => `l${i + 1}: &l${i + 1} [${Array(9).fill(`*l${i}`).join(", ")}]`);
    expect(await fault(["l0: &l0 [x]", ...levels].join("\n"), "yaml")).toEqual({ line: 1, column: 1 });
  });

  test("the event loop stays responsive while a long file is read", async () => {
    const text = "a: {b: [1, 2, 3]}\n---\n".repeat(5000);
    // Loads the library, which also takes turns.
    await readDocuments("a: 1", "yaml");
    const { turns, mostLooks } = await countTurns(() => readDocuments(text, "yaml"));
    // At least a look after each document. The first slice begins twice.
    expect(mostLooks).toBeLessThanOrEqual(6);
    expect(turns).toBeGreaterThan(5000 / 5);
  });
});

describe("readDocuments: files read as by kubectl", () => {
  test.each<[string, unknown]>([
    ["0443", 291],
    ["-0443", -291],
    ["8_080", 8080],
    ["0_443", 291],
    ["08", 8],
    ["0", 0],
    ["0o17", 15],
    ["0x_50", 80],
    ["0b101", 5],
    ["+81", 81],
    ["1e3", 1000],
    ["80.0", 80],
    ["10.0.0.1", "10.0.0.1"],
    ["'0443'", "0443"],
    ["0xyz", "0xyz"],
    ["_1", "_1"],
  ])("the scalar %s", async (text, value) => {
    expect(await readDocuments(`a: ${text}`, "yaml")).toEqual([{ a: value }]);
  });

  test.each([
    ["a: é\n---\nb: 2", [{ a: "é" }, { b: 2 }]],
    ['{"a": "é"}', [{ a: "é" }]],
  ])("UTF-16 with a byte order mark: %j", async (text, values) => {
    const little = Buffer.from(`\ufeff${text}`, "utf16le");
    for (const bytes of [little, Buffer.from(little).swap16()]) {
      expect(await readBytes(bytes, "yaml")).toEqual(values);
      expect(await readBytes(bytes, text.startsWith("{") ? "json" : "yaml")).toEqual(values);
    }
  });

  test.each<[string, Buffer, string, number]>([
    ["UTF-16 without a mark", Buffer.from("a: 1", "utf16le"), "UTF-16", 1],
    ["truncated UTF-16", Buffer.from("\ufeffa: 1", "utf16le").subarray(0, -1), "UTF-16", 1],
    ["UTF-32", Buffer.from("fffe000061000000", "hex"), "UTF-32", 1],
    ["Latin-1", Buffer.from("a: 1\nb: \xe9\n", "latin1"), "UTF-8", 2],
  ])("%s: the message says so, and what to do", async (_, bytes, encoding, line) => {
    await expect(readBytes(bytes, "yaml")).rejects.toMatchObject({
      ...{ code: "EFILE", line, remedy: "save it as UTF-8" },
      message: expect.stringContaining(encoding) as string,
    });
  });

  test("several JSON values in a YAML file are read", async () => {
    const text = '\n {"a": 1}\n{"b": {"c": [2]}}\n';
    expect(await readDocuments(text, "yaml")).toEqual([{ a: 1 }, { b: { c: [2] } }]);
    expect(await readDocuments("{a: 1}\n---\n{b: 2}", "yaml")).toEqual([{ a: 1 }, { b: 2 }]);
    expect(await fault('{"a": 1, "a": 2}', "yaml")).toEqual({ line: 1, column: 10 });
  });
});

describe("readDocuments: documents that are too large to be parsed at once", () => {
  const MIB = 1 << 20;
  const refusal = async (text: string, format: "json" | "yaml"): Promise<unknown> =>
    readDocuments(text, format).then(
      () => "read",
      (error: unknown) => error,
    );

  test.each([
    ["a YAML document", `a: 1\n---\nb: ${"x".repeat(2 * MIB)}\n---\nc: 1\n`, "yaml", 2, "---"],
    ["text that only looks like several documents", `a: |\n${"---- x\n".repeat(MIB / 2)}`, "yaml", 1, "---"],
    ["a JSON value", JSON.stringify({ a: "x".repeat(16 * MIB) }), "json", 1, "List of smaller objects"],
    ["an item of a list", `{"items": [{},\n{"a": "${"x".repeat(16 * MIB)}"}]}`, "json", 2, "List of smaller objects"],
  ] as const)(
    "%s: it is reported with its first line, and with what to do",
    async (_what, text, format, line, remedy) => {
      expect(await refusal(text, format)).toMatchObject({
        code: "EFILE",
        line,
        message: expect.stringContaining("MiB"),
        remedy: expect.stringContaining(remedy),
      });
    },
  );

  test("many documents are read that are much larger together", async () => {
    const values = await readDocuments(`a: ${"x".repeat(100_000)}\n---\n`.repeat(30), "yaml");
    expect(values).toHaveLength(30);
  });

  test("a list with many items that are much larger together is read, and an error in it is located", async () => {
    const items = Array.from({ length: 40 }, () => JSON.stringify({ a: "x".repeat(MIB / 2) })).join(",\n");
    expect(await readDocuments(`{"items": [${items}]}`, "json")).toHaveLength(1);
    expect(await refusal(`{"items": [${items},\n{"a":}]}`, "json")).toMatchObject({
      line: 41,
      message: expect.stringContaining("items[40]"),
    });
  });
});

function sorted(values: readonly unknown[]) {
  const items: Item[] = [...itemsOf(values)];
  return {
    objects: items.flatMap((one) => ("object" in one ? [[one.kind, one.name]] : [])),
    otherKinds: items.flatMap((one) => ("otherKind" in one ? [one.otherKind] : [])),
    faults: items.flatMap((one) => ("fault" in one ? [one.fault] : [])),
  };
}

function item(kind: string, apiVersion: string) {
  return { kind, apiVersion, metadata: { name: "x" } };
}

describe("readDocuments: objects", () => {
  test("the four kinds are read, also in lists, and items of a typed list without their kind", () => {
    const { objects, faults } = sorted([
      item("Service", "v1"),
      { kind: "List", apiVersion: "v1", items: [item("EndpointSlice", "discovery.k8s.io/v1"), item("Node", "v1")] },
      { kind: "ServiceCIDRList", apiVersion: "networking.k8s.io/v1beta1", items: [{ metadata: { name: "y" } }] },
      { kind: "ServiceList", apiVersion: "v1", items: null },
      { kind: "List", apiVersion: "v1" },
      { ...item("Service", "v1"), metadata: { name: "web", namespace: "shop" } },
    ]);
    expect(objects).toEqual([
      ["Service", "default/x"],
      ["EndpointSlice", "default/x"],
      ["Node", "x"],
      ["ServiceCIDR", "y"],
      ["Service", "shop/web"],
    ]);
    expect(faults).toEqual([]);
  });

  test("other kinds are distinguished", () => {
    const { objects, otherKinds } = sorted([
      item("Pod", "v1"),
      item("Pod", "v1"),
      { kind: "PodList", apiVersion: "v1", items: [{}] },
      item("IPAddress", "networking.k8s.io/v1"),
    ]);
    expect(objects).toEqual([]);
    expect(otherKinds).toEqual(["Pod (v1)", "Pod (v1)", "Pod (v1)", "IPAddress (networking.k8s.io/v1)"]);
  });

  test("a supported kind of another group is another kind", () => {
    const foreign = [
      item("Service", "serving.knative.dev/v1"),
      item("Node", "config.openshift.io/v1"),
      item("EndpointSlice", "example.org/v1"),
      item("ServiceCIDR", "example.org/v1"),
    ];
    const { objects, otherKinds, faults } = sorted(foreign);
    expect({ objects, faults }).toEqual({ objects: [], faults: [] });
    expect(otherKinds).toEqual([
      "Service (serving.knative.dev/v1)",
      "Node (config.openshift.io/v1)",
      "EndpointSlice (example.org/v1)",
      "ServiceCIDR (example.org/v1)",
    ]);
  });

  test.each<[unknown, string]>([
    [5, "document 1 is not an object"],
    [[], "document 1 is not an object"],
    [{ apiVersion: "v1" }, "document 1 has no kind"],
    [{ kind: "Service" }, "document 1 has no apiVersion"],
    [{ kind: "List", apiVersion: "v1", items: 5 }, "document 1: items is not a list"],
    [{ kind: "List", apiVersion: "v1", items: [null] }, "document 1, items[0] is not an object"],
    [{ kind: "Service", apiVersion: "v1", metadata: {} }, "document 1: Service has no metadata.name"],
    [
      item("EndpointSlice", "discovery.k8s.io/v1beta1"),
      "document 1: EndpointSlice default/x has the unsupported version discovery.k8s.io/v1beta1; supported: discovery.k8s.io/v1",
    ],
    [
      item("EndpointSlice", "v1"),
      "document 1: EndpointSlice default/x has the unsupported version v1; supported: discovery.k8s.io/v1",
    ],
    [item("constructor", "v1"), ""],
  ])("%j", (value, expected) => {
    const { objects, faults } = sorted([value]);
    expect(objects).toEqual([]);
    expect(faults.join()).toBe(expected);
  });
});
