/** A trace's beginning and end, and its handling of faults that the kernel does not produce on demand. */
import { beforeEach, expect, test } from "vitest";
import { CONNTRACK_STATUS, type ConntrackEntry } from "../../../../src/nft/conntrack/conntrack-table.ts";
import { bytesOf, portBytes } from "../../../../src/tools/explain/machine/packet-state.ts";
import { NfProto, TraceType } from "../../../../src/nft/kernel/constants.ts";
import { KernelError } from "../../../../src/nft/kernel/errors.ts";
import type { Expr, Op, RuleInfo, TraceEvent, TraceHandlers } from "../../../../src/nft/kernel/kernel.ts";
import { TraceChain, traceTable } from "../../../../src/tools/trace/trace-filter.ts";
import { NoOwnedTables, PacketTrace, type TraceKernel } from "../../../../src/tools/trace/packet-trace.ts";
import type { TracedPacket } from "../../../../src/tools/trace/traced-packet.ts";

const PORT_ID = 4711;
const ref = traceTable(PORT_ID);
const filter = { selectors: [], allPackets: false };
const refusal = (errno: string, op = 0): KernelError =>
  new KernelError("refused", "no", { action: "commit", faults: [{ op, errno }] });

class FakeKernel implements TraceKernel {
  readonly portId = PORT_ID;
  readonly committed: (readonly Op[])[] = [];
  refuse: KernelError | undefined;
  open = 0;
  rulesThere: RuleInfo[] = [];
  handlers: TraceHandlers | undefined;

  commit(ops: readonly Op[]): ReturnType<TraceKernel["commit"]> {
    if (this.refuse !== undefined) return Promise.reject(this.refuse);
    this.committed.push(ops);
    return Promise.resolve({ bytes: 0, messages: 0, kernelNs: 0, encodeNs: 0 });
  }
  chains(): ReturnType<TraceKernel["chains"]> {
    return Promise.reject(new KernelError("not-found", "the chain is gone", { action: "dump chains" }));
  }
  rules(): ReturnType<TraceKernel["rules"]> {
    return Promise.resolve(this.rulesThere);
  }
  readonly interfaces = { names: () => Promise.resolve(new Map([[1, "lo"]])) };
  trace(handlers: TraceHandlers): ReturnType<TraceKernel["trace"]> {
    this.handlers = handlers;
    this.open++;
    return Promise.resolve({
      close: () => {
        this.open--;
        return Promise.resolve();
      },
    });
  }
}

const marked: TraceEvent = {
  id: 1,
  ...ref,
  chain: TraceChain.traced,
  type: TraceType.rule,
  nfproto: NfProto.ip,
  rule: 9n,
  verdict: { verdict: "continue" },
  iif: 3,
  network: Uint8Array.of(0x45, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, ...bytesOf("192.0.2.1"), ...bytesOf("10.96.0.10")),
  transport: Uint8Array.of(...portBytes(4711), ...portBytes(80)),
};
const entry: ConntrackEntry = {
  family: "ip",
  original: { source: "192.0.2.1", sourcePort: 4711, destination: "10.96.0.10", destinationPort: 80, protocol: 6 },
  reply: { source: "10.244.0.5", sourcePort: 8080, destination: "192.0.2.10", destinationPort: 999, protocol: 6 },
  id: 7,
  status: CONNTRACK_STATUS.seenReply,
  mark: 0,
  zone: 0,
};

let kernel: FakeKernel;
let found: ConntrackEntry | undefined;
let told: TracedPacket[];
let lost: number;
beforeEach(() => {
  kernel = new FakeKernel();
  found = undefined;
  told = [];
  lost = 0;
});
const start = (): Promise<PacketTrace> =>
  PacketTrace.start(kernel, { lookup: () => Promise.resolve(found) }, filter, {
    onPacket: (packet) => told.push(packet),
    onLost: () => lost++,
    onError: (error) => {
      throw error;
    },
  });

test.each(["EINVAL", "EOPNOTSUPP"])(
  "a kernel without owned tables (%s) is reported, and nothing stays open",
  async (errno) => {
    kernel.refuse = refusal(errno);
    const error = await start().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(NoOwnedTables);
    expect((error as Error).message).toContain("5.12 can");
    expect(kernel.open).toBe(0);
  },
);

test.each([refusal("EINVAL", 3), refusal("EPERM"), new KernelError("no-permission", "", { action: "commit" })])(
  "another refusal is reported unchanged",
  async (error) => {
    kernel.refuse = error;
    await expect(start()).rejects.toBe(error);
    expect(kernel.open).toBe(0);
  },
);

test("the end removes the table, and reports the number of matches", async () => {
  const trace = await start();
  const counter: Expr = { type: "counter", packets: 12n, bytes: 0n };
  kernel.rulesThere = [{ ...ref, chain: TraceChain.traced, handle: 1n, exprs: [counter] }];
  expect(await trace.stop()).toEqual({ matched: 12, losses: 0 });
  expect(kernel.committed.at(-1)).toEqual([{ op: "delete", kind: "table", ...ref }]);
  expect(kernel.open).toBe(0);
});

test("an already deleted table is not a failure", async () => {
  const trace = await start();
  kernel.refuse = refusal("ENOENT");
  expect(await trace.stop()).toMatchObject({ losses: 0 });
});

test("if messages were lost, the endpoint is that of the connection tracking entry", async () => {
  const trace = await start();
  found = entry;
  kernel.handlers?.onEvents([marked]);
  kernel.handlers?.onLost();
  expect(await trace.stop()).toMatchObject({ losses: 1 });
  expect(lost).toBe(1);
  expect(told).toMatchObject([
    {
      verdict: "unknown",
      masqueraded: true,
      translated: { source: "192.0.2.10", sourcePort: 999, destination: "10.244.0.5", destinationPort: 8080 },
      in: "interface 3",
    },
  ]);
});

test("another connection's entry with the same addresses is not used", async () => {
  const trace = await start();
  found = entry;
  const left: TraceEvent = { ...marked, chain: TraceChain.postroutingLast, oif: 5, ctId: 8 };
  kernel.handlers?.onEvents([marked, left]);
  await expect.poll(() => told.length).toBe(1);
  expect(told[0]).toMatchObject({ verdict: "accepted", reply: "untracked" });
  await trace.stop();
});

test("an answer is not reported as missing if the wait for it was cut short", async () => {
  const trace = await start();
  found = { ...entry, status: 0 };
  kernel.handlers?.onEvents([marked, { ...marked, chain: TraceChain.postroutingLast, oif: 5 }]);
  await trace.stop();
  expect(told).toMatchObject([{ verdict: "accepted" }]);
  expect(told[0].reply).toBeUndefined();
});

test.each([
  ["nf_tables' own", { type: "reject", rejectType: 0, code: 3 }, "rejected"],
  ["iptables-nft's", { type: "opaque", name: "target", data: Buffer.from("\x0b\0\x01\0REJECT\0\0") }, "rejected"],
  ["none", { type: "immediate", dreg: 0, data: { verdict: "drop" } }, "dropped"],
] as const)("a rule that drops with a reject of %s", async (_, expr, verdict) => {
  const trace = await start();
  const foreign = { family: "ip", table: "filter", chain: "FORWARD" } as const;
  kernel.rulesThere = [{ ...foreign, handle: 5n, exprs: [expr] }];
  kernel.handlers?.onEvents([marked, { ...marked, ...foreign, rule: 5n, verdict: { verdict: "drop" } }]);
  await trace.stop();
  expect(told).toMatchObject([{ verdict, by: { table: "ip filter", chain: "FORWARD", hook: "", rule: "5" } }]);
});
