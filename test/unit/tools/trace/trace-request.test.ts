/** Arguments of `trace` as a filter, and the filter as a table. */
import { describe, expect, test } from "vitest";
import type { ServicePortStatus } from "../../../../src/observe/status-report.ts";
import { TableFlag } from "../../../../src/nft/kernel/constants.ts";
import { TraceChain, traceOps, traceTable } from "../../../../src/tools/trace/trace-filter.ts";
import { UsageError } from "../../../../src/base/user-error.ts";
import { broadness, filterOf, requestOf } from "../../../../src/tools/trace/trace-request.ts";
import { PORT_STATUS } from "../../observe/port-status.ts";

const ALL = ["tcp", "udp", "sctp"];

test.each([
  [
    "udp 10.244.0.5 10.96.0.10:53",
    { protocols: ["udp"], source: "10.244.0.5", to: { destination: "10.96.0.10", port: 53 } },
  ],
  ["10.96.0.10:53", { protocols: ALL, to: { destination: "10.96.0.10", port: 53 } }],
  ["[FD00::A]:53", { protocols: ALL, to: { destination: "fd00::a", port: 53 } }],
  ["fd00::a", { protocols: ALL, to: { destination: "fd00::a" } }],
  ["10.244.0.0/16 any:80", { protocols: ALL, source: "10.244.0.0/16", to: { destination: "any", port: 80 } }],
  ["10.96.0.0/16:53", { protocols: ALL, to: { destination: "10.96.0.0/16", port: 53 } }],
  ["sctp default/web", { protocols: ["sctp"], to: { service: "default/web" } }],
  ["service/default/web:80", { protocols: ALL, to: { service: "service/default/web:80" } }],
  ["tcp 30090", { protocols: ["tcp"], to: { service: "30090" } }],
  ["10.244.0.5 web:http", { protocols: ALL, source: "10.244.0.5", to: { service: "web:http" } }],
])("%s", (words, request) => {
  expect(requestOf(words.split(" "))).toEqual(request);
});

test.each([
  "",
  "tcp",
  "10.96.0.300:80",
  "10.96.0.1:0",
  "10.96.0.1:65536",
  "a b c d",
  "10.0.0.1 fd00::1",
  "x 10.0.0.1:80",
  "/web",
  "web/",
])("%j is refused", (words) => {
  expect(() => requestOf(words.split(" "))).toThrow(UsageError);
});

test.each([
  ["10.96.0.10:53", undefined],
  ["10.0.0.0/8 10.96.0.10:53", undefined],
  ["default/web", undefined],
  ["10.96.0.10", "traffic to all ports of 10.96.0.10"],
  ["10.96.0.0/16:53", "traffic to all addresses of 10.96.0.0/16"],
  ["any", "all traffic of this node"],
])("%s may match very many packets: %s", (words, why) => {
  expect(broadness(requestOf(words.split(" ")))).toBe(why);
});

const port = (
  protocol: "TCP" | "UDP",
  family: "ip" | "ip6",
  more: Partial<ServicePortStatus> = {},
): ServicePortStatus => ({
  ...PORT_STATUS,
  portName: protocol === "TCP" ? "http" : "quic",
  protocol,
  port: protocol === "TCP" ? 80 : 443,
  family,
  clusterIP: family === "ip" ? "10.96.0.80" : "fd00::80",
  ...more,
});

describe("a service", () => {
  const web = [
    port("TCP", "ip", { nodePort: 30080, loadBalancerIPs: ["203.0.113.80"] }),
    port("UDP", "ip"),
    port("TCP", "ip6"),
  ];
  const selectors = (words: string): unknown => filterOf(requestOf(words.split(" ")), web, false).selectors;

  test("means all its addresses with their ports, and its node ports at addresses of the node", () => {
    expect(selectors("default/web")).toEqual([
      { family: "ip", protocols: ["tcp"], destination: "10.96.0.80", port: 80 },
      { family: "ip", protocols: ["tcp"], destination: "203.0.113.80", port: 80 },
      { family: "ip", protocols: ["tcp"], destination: "node", port: 30080 },
      { family: "ip", protocols: ["udp"], destination: "10.96.0.80", port: 443 },
      { family: "ip6", protocols: ["tcp"], destination: "fd00::80", port: 80 },
    ]);
  });

  test("may be limited to one protocol, or one family through the source", () => {
    const udp = [{ family: "ip", protocols: ["udp"], destination: "10.96.0.80", port: 443 }];
    expect(selectors("udp default/web")).toEqual(udp);
    expect(selectors("2001:db8::1 default/web")).toMatchObject([{ family: "ip6" }]);
  });

  test("a service without such a port is refused", () => {
    expect(() => selectors("sctp default/web")).toThrow("default/web has no port of this protocol");
  });
});

test("any destination means every family, or the source's", () => {
  const families = (words: string): string[] =>
    filterOf(requestOf(words.split(" ")), [], false).selectors.map(({ family }) => family);
  expect(families("any:80")).toEqual(["ip", "ip6"]);
  expect(families("fd00::/8 any")).toEqual(["ip6"]);
});

test("the table is owned, new, and limits the packets that it marks", () => {
  const ref = traceTable(4711);
  const ops = traceOps(ref, filterOf(requestOf(["10.96.0.10:53"]), [], false));
  expect(ops[0]).toEqual({
    op: "create",
    kind: "table",
    family: "inet",
    table: "nft-proxier-trace-4711",
    flags: TableFlag.owner,
  });
  const rules = ops.flatMap((op) => (op.kind === "rule" && op.op === "add" ? [op] : []));
  const marking = rules
    .filter(({ chain }) => chain === TraceChain.traced)
    .map(({ exprs }) => exprs.map(({ type }) => type));
  expect(marking).toEqual([["counter"], ["limit", "immediate", "meta"]]);
  // New connections, those that tracking cannot place, and rejections (a TCP reset, an ICMP error), received and sent.
  const per = new Map<string, number>();
  for (const { chain } of rules) per.set(chain, (per.get(chain) ?? 0) + 1);
  expect(Object.fromEntries(per)).toEqual({
    traced: 2,
    refusals: 1,
    "prerouting-first": 2,
    "prerouting-tracked": 5,
    "output-first": 2,
    "output-tracked": 5,
  });
});

test("all packets are marked before anything else", () => {
  const ops = traceOps(traceTable(1), filterOf(requestOf(["10.96.0.10:53"]), [], true));
  const rulesIn = (chain: string): number =>
    ops.filter((op) => op.kind === "rule" && "chain" in op && op.chain === chain).length;
  // Once connections are tracked, replies of each protocol, rejections, and messages that a packet is too big.
  expect([rulesIn(TraceChain.preroutingFirst), rulesIn(TraceChain.preroutingTracked)]).toEqual([3, 6]);
});
