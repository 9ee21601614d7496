/** Lists and watches in protobuf: the same objects as in JSON give the same records and problems, and malformed bytes are refused. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nameOf, ObjectDecoder } from "../../../../src/objects/decode/object-decoder.js";
import { type Fields, isFields } from "../../../../src/base/unknown.js";
import {
  type BodyFormat,
  ListBody,
  type ListMeta,
  WatchBody,
  type WatchEvent,
} from "../../../../src/objects/kubernetes/bodies.js";
import { ProtocolError } from "../../../../src/objects/kubernetes/errors.js";
import type { KubeObject } from "../../../../src/objects/object-sink.js";
import { managedFields } from "../../../lab/api-server/managed-fields.ts";
import {
  delimited,
  encode,
  encodeEvent,
  encodeList,
  encodeObject,
  envelope,
  framed,
} from "../../../lab/api-server/protobuf.ts";
import type { KubeJson } from "../../../lab/api-server/resources.ts";
import { Dice } from "../../../support/dice.ts";

const TYPES = {
  Service: { kind: "Service", apiVersion: "v1" },
  EndpointSlice: { kind: "EndpointSlice", apiVersion: "discovery.k8s.io/v1" },
  Node: { kind: "Node", apiVersion: "v1" },
  ServiceCIDR: { kind: "ServiceCIDR", apiVersion: "networking.k8s.io/v1" },
} as const;
type Kind = keyof typeof TYPES;
const KINDS = Object.keys(TYPES) as Kind[];
const META = { resourceVersion: "12", continue: "abc", remainingItemCount: 5 };

/** Makes random objects: most values are good, and some are as wrong as their type allows. */
class Objects {
  constructor(private readonly dice: Dice) {}

  make(kind: Kind, i: number): KubeJson {
    const { dice } = this;
    const labels = {
      ...this.maybe({ "kubernetes.io/service-name": dice.pick(["web", "ü", ""]) }, 90),
      ...this.maybe({ "service.kubernetes.io/headless": "" }, 5),
      ...this.maybe({ "topology.kubernetes.io/zone": "z1" }),
      ...this.maybe({ constructor: "x" }),
    };
    const annotations = this.maybe({
      "nft-proxier.dev/balance": dice.pick(["consistent", "sometimes"]),
      "nft-proxier.dev/weights": "zone=a:3",
      "nft-proxier.dev/max-connections": dice.pick(["7", "-7"]),
      "endpoints.kubernetes.io/last-change-trigger-time": "2026-11-29T10:00:00.123Z",
    });
    const metadata = {
      name: `o-${i}`,
      ...(kind !== "Node" && kind !== "ServiceCIDR" && { namespace: dice.pick(["a", "b"]) }),
      uid: `uid-${i}`,
      resourceVersion: String(100 + i),
      creationTimestamp: dice.pick([null, "1969-12-31T23:59:59Z", "2026-11-29T10:00:00Z"]),
      ...this.maybe({ deletionTimestamp: "2026-11-29T10:00:00Z", deletionGracePeriodSeconds: 30, generation: 7 }),
      ...this.maybe({ labels }, 95),
      ...this.maybe({ annotations }),
      ...this.maybe({
        ownerReferences: [{ apiVersion: "v1", kind: "Service", name: "web", uid: "u", controller: true }],
      }),
    };
    const type = TYPES[kind];
    const object = { ...type, metadata, ...this.fields(kind) };
    return { ...object, metadata: { ...metadata, managedFields: managedFields(type.apiVersion, object) } };
  }

  maybe<T extends object>(fields: T, percent = 50): Partial<T> {
    return this.dice.chance(percent) ? fields : {};
  }

  list<T>(most: number, make: () => T): T[] {
    return Array.from({ length: this.dice.below(most + 1) }, make);
  }

  conditions(): object {
    const flag = () => this.dice.chance(70);
    return { ...this.maybe({ ready: flag() }), ...this.maybe({ serving: flag(), terminating: flag() }) };
  }

  ip(): string {
    return this.dice.pick([
      `10.0.${this.dice.below(3)}.${this.dice.below(300)}`,
      "fd00::1",
      "10.0.0.1",
      "127.0.0.1",
      "x",
      "",
    ]);
  }

  cidr(): string {
    return this.dice.pick(["10.0.0.0/8", "fd00::/64", "0.0.0.0/0", "10.0.0.0/99", ""]);
  }

  port(): number {
    return this.dice.pick([80, 443, 65535, 65536, 0, -1, 2 ** 31 - 1, -(2 ** 31)]);
  }

  protocol(): object {
    return this.maybe({ protocol: this.dice.pick(["TCP", "UDP", "SCTP", "ICMP", ""]) });
  }

  /** Nearly all endpoints of real clusters are like these. */
  plainEndpoints(): object[] {
    const { dice } = this;
    let last = 0;
    return this.list(30, () => ({
      addresses: [`10.0.${dice.below(256)}.${++last}`],
      ...this.maybe({ conditions: this.conditions() }),
      ...this.maybe({ targetRef: { kind: "Pod", namespace: "a", name: `pod-${last}`, uid: "u" } }),
      ...this.maybe({ nodeName: dice.pick(["n1", "n2"]), zone: "z1" }),
    }));
  }

  endpoints(): object[] {
    const { dice } = this;
    return this.list(30, () => ({
      addresses: this.list(2, () => this.ip()),
      ...this.maybe({ conditions: this.conditions() }),
      ...this.maybe({ targetRef: { kind: dice.pick(["Pod", "Node"]), namespace: "a", name: "pod-ü", uid: "u" } }),
      ...this.maybe({ nodeName: dice.pick(["n1", "n2"]) }),
      ...this.maybe({ zone: "z1", hostname: "h", deprecatedTopology: { a: "b" } }),
      ...this.maybe({ hints: { forZones: this.list(2, () => ({ name: "z1" })), forNodes: [{ name: "n1" }] } }),
    }));
  }

  fields(kind: Kind): object {
    const { dice } = this;
    switch (kind) {
      case "ServiceCIDR":
        return { spec: { cidrs: this.list(3, () => this.cidr()) }, status: {} };
      case "Node":
        return {
          spec: {
            ...this.maybe({ podCIDR: this.cidr() }),
            // Protobuf has no empty lists, and the API server omits them from JSON.
            ...this.maybe({ podCIDRs: [this.cidr(), ...this.list(1, () => this.cidr())] }),
            ...this.maybe({
              taints: [{ key: "k", effect: "NoSchedule", timeAdded: "2026-11-29T10:00:00Z" }],
              providerID: "p",
            }),
          },
          ...this.maybe({
            status: {
              capacity: { cpu: "2", memory: "1Gi" },
              conditions: [{ type: "Ready", status: "True", lastHeartbeatTime: "2026-11-29T10:00:00Z" }],
              images: [{ names: ["a", "b"], sizeBytes: 2 ** 40 }],
              addresses: this.list(4, () => ({
                type: dice.pick(["InternalIP", "ExternalIP", "Hostname", ""]),
                address: this.ip(),
              })),
            },
          }),
        };
      case "EndpointSlice":
        return {
          addressType: dice.pick(["IPv4", "IPv6", "IPv4", "FQDN", "x"]),
          endpoints: dice.chance(50) ? this.plainEndpoints() : this.endpoints(),
          ports: this.list(4, () => ({
            ...this.maybe({ name: dice.pick(["http", ""]), appProtocol: "http" }),
            ...this.protocol(),
            ...this.maybe({ port: this.port() }, 90),
          })),
        };
      case "Service":
        return {
          spec: {
            ...this.maybe({ type: dice.pick(["ClusterIP", "LoadBalancer", "ExternalName", "x", ""]) }),
            ...this.maybe({ clusterIP: dice.pick(["10.0.0.9", "None", ""]) }),
            ...this.maybe({ clusterIPs: this.list(2, () => this.ip()), ipFamilies: ["IPv4"] }),
            ports: this.list(5, () => ({
              ...this.maybe({ name: dice.pick(["http", "dns", ""]) }),
              ...this.protocol(),
              port: this.port(),
              targetPort: dice.pick<string | number>([8080, "http"]),
              ...this.maybe({ nodePort: this.port() }),
            })),
            ...this.maybe({ externalIPs: this.list(2, () => this.ip()), selector: { app: "web" } }),
            ...this.maybe({ sessionAffinity: dice.pick(["ClientIP", "None", "x"]) }),
            ...this.maybe({ sessionAffinityConfig: { clientIP: this.maybe({ timeoutSeconds: this.port() }) } }),
            ...this.maybe({ externalTrafficPolicy: dice.pick(["Local", "x"]), internalTrafficPolicy: "Local" }),
            ...this.maybe({ healthCheckNodePort: this.port(), allocateLoadBalancerNodePorts: true }),
            ...this.maybe({ loadBalancerSourceRanges: this.list(2, () => this.cidr()) }),
          },
          ...this.maybe({
            status: {
              loadBalancer: {
                ingress: this.list(3, () => ({
                  ...this.maybe({ ip: this.ip() }),
                  ...this.maybe({ ipMode: dice.pick(["VIP", "Proxy", "x"]), hostname: "h" }),
                })),
              },
            },
          }),
        };
    }
  }
}

/**
 * Lists, events and a Status as the serializers of Kubernetes 1.36.3 write them (k8s.io/apimachinery/pkg/runtime/serializer), in
 * JSON and, in base64, in protobuf.
 */
const SERIALIZED = JSON.parse(readFileSync(join(import.meta.dirname, "fixtures/serialized.json"), "utf8")) as Record<
  Kind,
  Record<"jsonList" | "jsonWatch" | "protobufList" | "protobufWatch" | "protobufStatus", string>
>;

/** Cuts bytes into pieces of random length. */
function pieces(bytes: Buffer, dice: Dice): Buffer[] {
  const cut: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 1 + dice.below(dice.pick([1, 20, 3000]));
    cut.push(bytes.subarray(at, end));
    at = end;
  }
  return cut;
}

function readList(kind: Kind, format: BodyFormat, chunks: readonly Buffer[]): { items: Fields[]; meta: ListMeta } {
  const body = new ListBody(TYPES[kind], format);
  const items = chunks.flatMap((chunk) => [...body.push(chunk)]).filter(isFields);
  return { items, meta: body.end() };
}

function readWatch(kind: Kind, format: BodyFormat, chunks: readonly Buffer[]): WatchEvent[] {
  const body = new WatchBody(TYPES[kind], format);
  const events = chunks.flatMap((chunk) => [...body.push(chunk)]);
  expect(body.midEvent).toBe(false);
  return events;
}

function decode(kind: Kind, object: unknown): KubeObject {
  const fields = isFields(object) ? object : {};
  return new ObjectDecoder({ nodeName: "n1" }).decode(kind, nameOf(kind, fields) ?? "", fields);
}

function jsonList(kind: Kind, objects: readonly KubeJson[]): Buffer {
  const { kind: itemKind, apiVersion } = TYPES[kind];
  const items = objects.map(({ kind: _kind, apiVersion: _apiVersion, ...item }) => item);
  return Buffer.from(JSON.stringify({ kind: `${itemKind}List`, apiVersion, metadata: META, items }));
}

function protobufList(kind: Kind, objects: readonly KubeJson[]): Buffer {
  return encodeList(
    TYPES[kind],
    META,
    objects.map((object) => encode(kind, object)),
  );
}

function objectsOf(kind: Kind, count: number, dice: Dice): KubeJson[] {
  const objects = new Objects(dice);
  return Array.from({ length: count }, (_, i) => objects.make(kind, i));
}

describe.each(KINDS)("%s in protobuf and in JSON", (kind) => {
  test("lists, split anywhere, give the same records and problems", () => {
    const dice = new Dice(1);
    const objects = objectsOf(kind, 300, dice);
    const json = readList(kind, "JSON", [jsonList(kind, objects)]);
    const protobuf = readList(kind, "protobuf", pieces(protobufList(kind, objects), dice));
    expect(protobuf.meta).toEqual(json.meta);
    expect(protobuf.items).toHaveLength(300);
    for (const [i, item] of protobuf.items.entries()) expect(decode(kind, item)).toEqual(decode(kind, json.items[i]));
  });

  test("Kubernetes' own list gives the same records and problems, and is what the test server would send", () => {
    const { jsonList: text, protobufList } = SERIALIZED[kind];
    const bytes = Buffer.from(protobufList, "base64");
    const json = readList(kind, "JSON", [Buffer.from(text)]);
    const protobuf = readList(kind, "protobuf", [bytes]);
    expect(protobuf.meta).toEqual(json.meta);
    expect(protobuf.items.map((item) => decode(kind, item))).toEqual(json.items.map((item) => decode(kind, item)));
    const items = json.items.map((item) => encode(kind, item));
    expect(encodeList(TYPES[kind], META, items).toString("latin1")).toBe(bytes.toString("latin1"));
  });

  test("Kubernetes' own events give the same records and problems, and its Status an error", () => {
    const { jsonWatch, protobufWatch } = SERIALIZED[kind];
    const read = (format: BodyFormat, bytes: Buffer): unknown[] => {
      const events: unknown[] = [];
      const body = new WatchBody(TYPES[kind], format);
      try {
        for (const { type, object } of body.push(bytes)) {
          const { metadata } = isFields(object) ? object : {};
          const { resourceVersion, annotations } = isFields(metadata) ? metadata : {};
          events.push([type, decode(kind, object), resourceVersion === "" ? undefined : resourceVersion, annotations]);
        }
      } catch (error) {
        events.push(error);
      }
      return events;
    };
    const json = read("JSON", Buffer.from(jsonWatch));
    expect(json.at(-1)).toMatchObject({ status: 410, reason: "Expired", retryAfterMs: 3000 });
    expect(json.at(-2)).toMatchObject(["BOOKMARK", {}, "99", { "k8s.io/initial-events-end": "true" }]);
    expect(read("protobuf", Buffer.from(protobufWatch, "base64"))).toEqual(json);
  });

  test("events, split anywhere, give the same records and problems", () => {
    const dice = new Dice(2);
    const objects = objectsOf(kind, 100, dice);
    const names = objects.map(() => dice.pick(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]));
    const lines = objects.map((object, i) => `${JSON.stringify({ type: names[i], object })}\n`);
    const frames = objects.map((object, i) => encodeEvent(names[i], encodeObject(object)));
    const json = readWatch(kind, "JSON", [Buffer.from(lines.join(""))]);
    const protobuf = readWatch(kind, "protobuf", pieces(Buffer.concat(frames), dice));
    expect(protobuf.map(({ type }) => type)).toEqual(names);
    for (const [i, { object }] of protobuf.entries()) {
      expect(object).toMatchObject({ ...TYPES[kind], metadata: { resourceVersion: String(100 + i) } });
      expect(decode(kind, object)).toEqual(decode(kind, json[i].object));
    }
  });
});

describe("endpoints in protobuf", () => {
  const plain = {
    addresses: ["10.0.0.1"],
    conditions: { ready: false, serving: true, terminating: true },
    nodeName: "n1",
    zone: "z1",
    targetRef: { kind: "Pod", namespace: "a", name: "p" },
  };
  const sliceWith = (addressType: string, endpoints: readonly object[]): KubeJson => ({
    ...TYPES.EndpointSlice,
    metadata: { name: "s", namespace: "a", labels: { "kubernetes.io/service-name": "web" } },
    addressType,
    endpoints,
    ports: [{ port: 80 }],
  });
  const other = (fields: object) => [
    plain,
    { ...plain, addresses: ["10.0.0.2"], ...fields },
    { addresses: ["10.0.0.3"] },
  ];

  test.each<[string, string, object[]]>([
    ["plain ones", "IPv4", other({})],
    ["none", "IPv4", []],
    ["several addresses", "IPv4", other({ addresses: ["10.0.0.2", "x", ""] })],
    ["a Node", "IPv4", other({ targetRef: { kind: "Node", namespace: "b", name: "n" } })],
    ["the same address twice", "IPv4", other({ addresses: ["10.0.0.1"], conditions: {} })],
    ["a loopback address", "IPv4", other({ addresses: ["127.0.0.1"] })],
    ["the wrong address type", "IPv6", other({})],
    ["pods of two namespaces", "IPv4", other({ targetRef: { kind: "Pod", namespace: "b", name: "p" } })],
    ["a pod without a namespace", "IPv4", other({ targetRef: { kind: "Pod", name: "p" } })],
    ["long and foreign names", "IPv4", other({ nodeName: "n".repeat(300), zone: "zöne", targetRef: { kind: "Pöd" } })],
    ["hints", "IPv4", other({ hints: { forZones: [{ name: "z" }] } })],
    ["no address", "IPv4", other({ addresses: [] })],
    ["an IPv6 address", "IPv6", other({ addresses: ["fd00::1"] })],
    ["addresses that are none", "IPv4", ["010.0.0.1", "10.0.0.256", ""].map((text) => ({ addresses: [text] }))],
  ])("%s: the same record as from JSON", (_what, addressType, endpoints) => {
    const slice = sliceWith(addressType, endpoints);
    const { items } = readList("EndpointSlice", "protobuf", [protobufList("EndpointSlice", [slice])]);
    expect(decode("EndpointSlice", items[0])).toEqual(decode("EndpointSlice", slice));
  });

  test("onPod is called for endpoints that are Pods", () => {
    // Kubernetes omits an empty namespace from JSON, but not from protobuf.
    const endpoints = other({ targetRef: { kind: "Pod", namespace: "", name: "q" } });
    const [item] = readList("EndpointSlice", "protobuf", [
      protobufList("EndpointSlice", [sliceWith("IPv4", endpoints)]),
    ]).items;
    const pods: string[] = [];
    const onPod = (address: string, pod: string) => void pods.push(`${address} ${pod}`);
    new ObjectDecoder({ nodeName: "n1", onPod }).decode("EndpointSlice", "a/s", item);
    expect(pods).toEqual(["10.0.0.1 a/p", "10.0.0.2 a/q"]);
  });
});

describe("protobuf of another kind", () => {
  const pod = { kind: "Pod", apiVersion: "v1" };

  test("a list of Pods is refused, and no item of it is passed on", () => {
    const body = new ListBody(TYPES.Service, "protobuf");
    const list = encodeList(pod, META, [delimited(1, Buffer.from("no ObjectMeta"))]);
    expect(() => [...body.push(list)]).toThrow(/^the answer is not a ServiceList of v1: its kind is "PodList"$/);
  });

  test("an event with a Pod is refused", () => {
    const event = encodeEvent("ADDED", envelope("Pod", "v1", Buffer.from("\n\x00")));
    expect(() => readWatch("Service", "protobuf", [event])).toThrow(/its kind is "Pod"$/);
  });

  test("an ERROR event is an error with the code of its Status", () => {
    const details = { retryAfterSeconds: 7 };
    const status = { kind: "Status", apiVersion: "v1", code: 410, reason: "Expired", message: "too old", details };
    const error: unknown = expect.objectContaining({
      status: 410,
      reason: "Expired",
      message: "too old",
      retryAfterMs: 7000,
    });
    expect(() => readWatch("Service", "protobuf", [encodeEvent("ERROR", encodeObject(status))])).toThrow(error);
    expect(() => readWatch("Service", "protobuf", [encodeEvent("ERROR", Buffer.from("text"))])).toThrow(ProtocolError);
  });
});

describe("malformed protobuf", () => {
  const objects = objectsOf("EndpointSlice", 3, new Dice(3));
  const list = protobufList("EndpointSlice", objects);
  const events = Buffer.concat(objects.map((object) => encodeEvent("ADDED", encodeObject(object))));

  test("an incomplete list is refused, wherever it ends", () => {
    // The last 4 bytes are the envelope's empty fields.
    for (let end = 0; end < list.length - 4; end++) {
      expect(() => readList("EndpointSlice", "protobuf", [list.subarray(0, end)])).toThrow(ProtocolError);
    }
  });

  test("changed bytes cause a ProtocolError at most", () => {
    const dice = new Dice(4);
    const outcomes = { read: 0, refused: 0 };
    for (let round = 0; round < 3000; round++) {
      const [whole, read] = dice.pick([
        [list, readList],
        [events, readWatch],
      ] as const);
      const bytes = Buffer.from(whole);
      for (let n = 1 + dice.below(4); n > 0; n--) bytes[dice.below(bytes.length)] = dice.below(256);
      try {
        const result = read("EndpointSlice", "protobuf", pieces(bytes, dice));
        for (const one of "items" in result ? result.items : result)
          decode("EndpointSlice", "object" in one ? one.object : one);
        outcomes.read++;
      } catch (error) {
        if (!(error instanceof ProtocolError) && !/midEvent|expected/.test(String(error))) throw error;
        outcomes.refused++;
      }
    }
    expect(Math.min(outcomes.read, outcomes.refused)).toBeGreaterThan(300);
  });

  /** A field with this length, whatever follows. */
  const claims = (field: number, length: readonly number[]) => Buffer.from([(field << 3) | 2, ...length]);
  const MANY = [0xff, 0xff, 0xff, 0xff, 0x7f];
  const inList = (item: Buffer) => encodeList(TYPES.Service, META, [item]);
  test.each([
    ["that starts with other bytes", Buffer.from("json\n\x00"), /is not protobuf: it does not start with "k8s"$/],
    ["that is empty", Buffer.alloc(0), /the list ends too early$/],
    ["without an envelope", Buffer.from("k8s\0"), /its kind is missing$/],
    ["that is JSON", jsonList("Service", []), /does not start with "k8s"$/],
    ["whose envelope is too large", Buffer.concat([list.subarray(0, 4), claims(1, MANY)]), /exceeds 8 MiB/],
    ["whose item is longer than the list", envelope("ServiceList", "v1", claims(2, [9])), /exceeds the list$/],
    ["with a string that is longer than its message", inList(delimited(1, claims(1, [9]))), /exceeds its message$/],
    ["with a length of 2^64 - 1", inList(claims(1, [...Array<number>(9).fill(0xff), 1])), /exceeds its message$/],
    [
      "with a number of 11 bytes",
      inList(Buffer.from([0x98, 1, ...Array<number>(10).fill(0xff), 1])),
      /more than 10 bytes$/,
    ],
    ["with an incomplete number", inList(Buffer.from([0x98])), /ends in the middle of a number$/],
    [
      "with a number where a message belongs",
      inList(Buffer.from([8, 1])),
      /^the answer is not protobuf: field metadata has wire type 0$/,
    ],
    [
      "that has a number in place of items",
      envelope("ServiceList", "v1", Buffer.from([16, 1])),
      /field 2 has wire type 0$/,
    ],
    ["that is a number", Buffer.concat([list.subarray(0, 4), Buffer.from([16, 1])]), /field 2 has wire type 0$/],
    [
      "with a negative length",
      Buffer.concat([list.subarray(0, 4), claims(2, [...Array<number>(9).fill(0xff), 1])]),
      /a field exceeds its message$/,
    ],
    ["with a field of number 0", inList(Buffer.from([2, 0])), /2 is not a field's tag$/],
    ["with a group", inList(Buffer.from([0x9b, 1, 0])), /a field has wire type 3$/],
    ["with a fixed number that is incomplete", inList(Buffer.from([0x99, 1, 1])), /exceeds its message$/],
    ["with two lists", Buffer.concat([inList(Buffer.alloc(0)), delimited(2, Buffer.alloc(0))]), /there are two lists$/],
  ])("a list %s is refused", (_what, bytes, message) => {
    for (const chunks of [[bytes], Array.from(bytes, (byte) => Buffer.of(byte))]) {
      expect(() => readList("Service", "protobuf", chunks)).toThrow(ProtocolError);
      expect(() => readList("Service", "protobuf", chunks)).toThrow(message);
    }
  });

  test("unknown fields of every wire type are skipped", () => {
    const [slice] = objects;
    const unknown = Buffer.concat([
      Buffer.from([0xf8, 0x7f, 0xff, 1, 0xf9, 0x7f, 1, 2, 3, 4, 5, 6, 7, 8, 0xfd, 0x7f, 1, 2, 3, 4]),
      delimited(999, Buffer.from("text")),
    ]);
    const item = Buffer.concat([unknown, encode("EndpointSlice", slice), unknown]);
    const bytes = encodeList(TYPES.EndpointSlice, META, [item]);
    const { items } = readList("EndpointSlice", "protobuf", [bytes]);
    expect(decode("EndpointSlice", items[0])).toEqual(decode("EndpointSlice", slice));
    // The same in the list and in its envelope; the varint is negative.
    const negative = Buffer.from([0xf8, 0x7f, ...Array<number>(9).fill(0xff), 1]);
    const fields = Buffer.concat([negative, unknown, Buffer.from([0xfd, 0x7f, 0xff, 0xff, 0xff, 0xff])]);
    const inner = Buffer.concat([fields, delimited(2, encode("EndpointSlice", slice)), fields]);
    const whole = Buffer.concat([envelope("EndpointSliceList", TYPES.EndpointSlice.apiVersion, inner), fields]);
    for (const chunks of [[whole], Array.from(whole, (byte) => Buffer.of(byte))])
      expect(readList("EndpointSlice", "protobuf", chunks).items).toEqual(items);
  });

  test("a message that occurs in parts is merged", () => {
    const parts = [delimited(1, delimited(1, Buffer.from("o"))), delimited(1, delimited(3, Buffer.from("a")))];
    const { items } = readList("Service", "protobuf", [inList(Buffer.concat(parts))]);
    expect(items).toEqual([{ metadata: { name: "o", namespace: "a" } }]);
  });

  test("a list of more items than an object can have is refused", () => {
    const many = (field: number, count: number) => Buffer.alloc(2 * count, Buffer.from([(field << 3) | 2, 0]));
    const list = encodeList(TYPES.EndpointSlice, META, [many(2, (1 << 20) + 1)]);
    expect(() => readList("EndpointSlice", "protobuf", [list])).toThrow(/more than 1048576 items$/);
  });

  test("a service with as many external IPs as fit into an object of the API does not stop others", () => {
    const externalIPs = Array<string>(Math.floor((3 << 20) / 9)).fill("1.1.1.1");
    const [first, ...others] = objectsOf("Service", 3, new Dice(5));
    const { items } = readList("Service", "protobuf", [
      protobufList("Service", [{ ...first, spec: { ports: [], externalIPs } }, ...others]),
    ]);
    expect(items).toHaveLength(3);
    const { spec } = items[0] as { spec: { externalIPs: readonly string[] } };
    expect(spec.externalIPs.length).toBe(externalIPs.length);
  });

  test("messages that are nested deeply are skipped, or refused", () => {
    let deep: Buffer = Buffer.alloc(0);
    for (let depth = 0; depth < 2000; depth++) deep = delimited(1, deep);
    expect(() => readList("Service", "protobuf", [inList(deep)])).not.toThrow(RangeError);
    expect(readList("Service", "protobuf", [inList(delimited(99, deep))]).items).toEqual([{}]);
  });

  test("a large item or event is refused as soon as its length arrives", () => {
    const { kind, apiVersion } = TYPES.Service;
    const whole = encodeList({ kind, apiVersion }, META, [Buffer.alloc(9 << 20)]);
    const body = new ListBody(TYPES.Service, "protobuf");
    expect(() => [...body.push(whole.subarray(0, 100))]).toThrow(
      /^a value in the list exceeds 8 MiB, more than any object can have$/,
    );
    for (const length of [(8 << 20) + 1, 2 ** 32 - 1]) {
      const frame = Buffer.alloc(4);
      frame.writeUInt32BE(length);
      const watch = new WatchBody(TYPES.Service, "protobuf");
      expect(() => [...watch.push(frame)]).toThrow(
        /^an event of a watch exceeds 8 MiB, more than any object can have$/,
      );
    }
  });

  test.each([
    ["is empty", Buffer.alloc(0), /unknown type: none$/],
    ["is JSON", Buffer.from('{"type":"ADDED"}'), /^an event is not protobuf: a field has wire type 3$/],
    ["has no object", delimited(1, Buffer.from("ADDED")), /its kind is missing$/],
    [
      "has an object in JSON",
      Buffer.concat([delimited(1, Buffer.from("ADDED")), delimited(2, delimited(1, Buffer.from("{}")))]),
      /^an event is not protobuf: an object does not start with "k8s"$/,
    ],
  ])("an event that %s is refused", (_what, event, message) => {
    for (const chunks of [[framed(event)], Array.from(framed(event), (byte) => Buffer.of(byte))]) {
      expect(() => readWatch("Service", "protobuf", chunks)).toThrow(ProtocolError);
      expect(() => readWatch("Service", "protobuf", chunks)).toThrow(message);
    }
  });

  test("an incomplete event is not delivered", () => {
    for (let end = 1; end < 40; end++) {
      const body = new WatchBody(TYPES.EndpointSlice, "protobuf");
      expect([...body.push(events.subarray(0, end))]).toEqual([]);
      expect(body.midEvent).toBe(true);
    }
  });
});
