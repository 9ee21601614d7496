import { describe, expect, it } from "vitest";
import { newServerAttribute } from "../../support/new-ipvs-server.ts";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import { IpsetTable } from "../../../src/netlink/ipset-table.js";
import { destinationAttribute, IpvsTable, type VirtualServer } from "../../../src/netlink/ipvs-table.js";
import { LinkTable } from "../../../src/netlink/link-table.js";
import {
  attribute,
  decodeAttributes,
  decodeReplies,
  encodeRequest,
  headerNumber,
  joined,
  nest,
  nestOf,
  networkAttribute,
  networkNumber,
  networkNumberOf,
  number,
  numberOf,
  text,
  textOf,
} from "../../../src/nft/kernel/netlink-message.js";

/** Answers requests in turn, and records them. */
class Answers {
  readonly requests: Uint8Array[] = [];
  readonly #answers: (Uint8Array | string)[];

  constructor(...answers: (Uint8Array | string)[]) {
    this.#answers = answers;
  }

  exchange = (_protocol: number, request: Uint8Array): Promise<Uint8Array> => {
    this.requests.push(request);
    const answer = this.#answers.shift() ?? new Uint8Array();
    if (typeof answer !== "string") return Promise.resolve(answer);
    return Promise.reject(new KernelError("system", answer, { action: "test", errno: answer }));
  };
}

const reply = (header: Uint8Array, ...attributes: Uint8Array[]): Uint8Array =>
  encodeRequest({ type: 20, flags: 0, header, attributes });
const generic = (...attributes: Uint8Array[]): Uint8Array => reply(new Uint8Array(4), ...attributes);
/** CTRL_ATTR_FAMILY_ID 0x1f. */
const FAMILY = generic(attribute(1, number(0x1f, 2)));

const SERVER: VirtualServer = {
  family: "ip",
  fwmark: 0,
  protocol: "TCP",
  address: "10.96.0.1",
  port: 443,
  scheduler: "rr",
};
const SERVER6: VirtualServer = { ...SERVER, family: "ip6", protocol: "UDP", address: "fd00::1", port: 53 };
const DESTINATION = {
  family: "ip",
  address: "10.244.0.5",
  port: 8443,
  method: 0,
  weight: 1,
  upper: 0,
  lower: 0,
  active: 0,
  inactive: 0,
} as const;

describe("netlink messages", () => {
  it("contain the encoded values", () => {
    const bytes = encodeRequest({
      type: 7,
      flags: 4,
      header: Uint8Array.of(1, 2, 3, 4),
      attributes: [
        attribute(1, number(0x1234, 2)),
        networkAttribute(2, networkNumber(0x1234, 2)),
        nest(3, [attribute(1, text("kube")), attribute(2, number(5, 1))]),
      ],
    });
    const [message] = decodeReplies(bytes, 4);
    expect([message.type, ...message.header]).toEqual([7, 1, 2, 3, 4]);
    expect(numberOf(message.attributes, 1)).toBe(0x1234);
    expect(networkNumberOf(message.attributes, 2)).toBe(0x1234);
    expect(textOf(nestOf(message.attributes, 3), 1)).toBe("kube");
    expect(numberOf(nestOf(message.attributes, 3), 2)).toBe(5);
    expect(numberOf(message.attributes, 9)).toBeUndefined();
    expect(headerNumber(message.header, 0, 1)).toBe(1);
  });

  it("may follow one another", () => {
    const bytes = joined([generic(attribute(1, text("a"))), generic(attribute(1, text("b")))]);
    expect(decodeReplies(bytes, 4).map(({ attributes }) => textOf(attributes, 1))).toEqual(["a", "b"]);
    expect(decodeReplies(new Uint8Array(), 4)).toEqual([]);
  });

  it("messages with wrong lengths are refused", () => {
    const bytes = generic(attribute(1, text("kube-ipvs0")));
    for (let length = 1; length < bytes.length; length++) {
      expect(() => decodeReplies(bytes.subarray(0, length), 4)).toThrow(KernelError);
    }
    expect(() => decodeAttributes(Uint8Array.of(3, 0, 1, 0))).toThrow("an attribute's length is out of bounds");
    expect(() => decodeAttributes(Uint8Array.of(5, 0, 1))).toThrow(KernelError);
    expect(() => numberOf(decodeAttributes(attribute(1, new Uint8Array(3))), 1)).toThrow("is not a number");
  });
});

describe("IPVS", () => {
  it("a kernel without IPVS has no servers, and is asked only for the family", async () => {
    const netlink = new Answers("ENOENT");
    expect(await new IpvsTable(netlink).virtualServers()).toEqual([]);
    expect(netlink.requests).toHaveLength(1);
    expect(textOf(decodeReplies(netlink.requests[0], 4)[0].attributes, 2)).toBe("IPVS");
  });

  it("virtual servers are read in both families, also by firewall mark", async () => {
    const marked = nest(1, [attribute(1, number(2, 2)), attribute(5, number(7, 4)), attribute(6, text("wlc"))]);
    const netlink = new Answers(
      FAMILY,
      joined([generic(newServerAttribute(SERVER)), generic(newServerAttribute(SERVER6)), generic(marked)]),
    );
    expect(await new IpvsTable(netlink).virtualServers()).toEqual([
      SERVER,
      SERVER6,
      { family: "ip", fwmark: 7, protocol: undefined, address: "", port: 0, scheduler: "wlc" },
    ]);
    // The family's number was requested once.
    expect(decodeReplies(netlink.requests[1], 4)[0].type).toBe(0x1f);
  });

  it("a destination is read with its connections", async () => {
    const counts = [7, 8, 9].map((type) => attribute(type, number(type, 4)));
    const plain = decodeReplies(generic(destinationAttribute(DESTINATION)), 4)[0];
    const inner = [...nestOf(plain.attributes, 2)].map(([type, [data]]) => attribute(type, data));
    const netlink = new Answers(FAMILY, generic(nest(2, [...inner, ...counts])));
    expect(await new IpvsTable(netlink).destinations(SERVER)).toEqual([{ ...DESTINATION, active: 7, inactive: 8 }]);
  });

  it("an object that was deleted meanwhile is not an error, and anything else is", async () => {
    const table = new IpvsTable(new Answers(FAMILY, "ESRCH", "ESRCH", "ENOENT", "EPERM"));
    expect(await table.destinations(SERVER)).toEqual([]);
    await table.remove(SERVER);
    await table.quiesce(SERVER, DESTINATION);
    await expect(table.remove(SERVER)).rejects.toThrow("EPERM");
  });

  it("a quiesced destination keeps everything except its weight", async () => {
    const netlink = new Answers(FAMILY);
    await new IpvsTable(netlink).quiesce(SERVER, { ...DESTINATION, method: 2, upper: 5 });
    const { header, attributes } = decodeReplies(netlink.requests[1], 4)[0];
    expect(header[0]).toBe(6);
    const sent = nestOf(attributes, 2);
    expect([3, 4, 5, 6].map((type) => numberOf(sent, type))).toEqual([2, 0, 5, 0]);
  });
});

describe("ipset", () => {
  it("a set in use is not an error, and neither is a missing one", async () => {
    const table = new IpsetTable(new Answers("E4100", "ENOENT", new Uint8Array(), "EPERM"));
    expect(await table.destroy("A")).toBe("in-use");
    expect(await table.destroy("B")).toBe("destroyed");
    expect(await table.destroy("C")).toBe("destroyed");
    await expect(table.destroy("D")).rejects.toThrow("EPERM");
  });

  it("elements arrive with their ports, in as many messages as the kernel likes", async () => {
    const element = (port: number, protocol?: number): Uint8Array =>
      nest(7, [
        networkAttribute(4, networkNumber(port, 2)),
        ...(protocol === undefined ? [] : [attribute(7, number(protocol, 1))]),
      ]);
    const netlink = new Answers(
      joined([generic(nest(8, [element(30_001), element(30_002)])), generic(nest(8, [element(30_003, 132)]))]),
      "ENOENT",
    );
    const table = new IpsetTable(netlink);
    expect(await table.ports("KUBE-NODE-PORT-TCP")).toEqual([
      { port: 30_001, protocol: undefined },
      { port: 30_002, protocol: undefined },
      { port: 30_003, protocol: 132 },
    ]);
    expect(await table.ports("KUBE-6-NODE-PORT-TCP")).toEqual([]);
  });
});

describe("interfaces", () => {
  it("an interface is found by its name, with its kind", async () => {
    const header = joined([new Uint8Array(4), number(7, 4), new Uint8Array(8)]);
    const netlink = new Answers(reply(header, nest(18, [attribute(1, text("dummy"))])), "ENODEV");
    const table = new LinkTable(netlink);
    expect(await table.link("kube-ipvs0")).toEqual({ index: 7, kind: "dummy" });
    expect(await table.link("kube-ipvs0")).toBeUndefined();
  });

  it("addresses are those of the requested interface", async () => {
    const address = (index: number, bytes: readonly number[]): Uint8Array =>
      encodeRequest({
        type: 20,
        flags: 0,
        header: joined([Uint8Array.of(2, 32, 0, 0), number(index, 4)]),
        attributes: [attribute(1, Uint8Array.from(bytes)), attribute(2, Uint8Array.from(bytes))],
      });
    const netlink = new Answers(joined([address(7, [10, 96, 0, 1]), address(2, [192, 0, 2, 10])]));
    expect(await new LinkTable(netlink).addressesOf(7)).toEqual([
      { family: "ip", address: "10.96.0.1", prefixLength: 32 },
    ]);
  });

  it("there is no source address without a route", async () => {
    expect(await new LinkTable(new Answers("ENETUNREACH")).sourceTo("192.0.2.1")).toBeUndefined();
  });
});
