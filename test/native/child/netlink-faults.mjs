/**
 * Uses the kernel while its netlink sockets are disturbed (test/lab/netlink-faults.cc, loaded before Node), and prints the results by case.
 */
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { NetlinkConntrack } from "../../../dist/nft/conntrack/netlink-conntrack.js";
import { NftKernel } from "../../../dist/nft/kernel/nft-kernel.js";
import { Table } from "../../../dist/nft/engine-exports.js";
import { errorOf, report } from "./addon.mjs";

const faults = createRequire(import.meta.url)(process.env.NFT_PROXIER_FAULTS);
const [SEND, RECEIVE, POLL, LOOK] = [0, 1, 2, 3];
const [FAILS, LOSES, TRUNCATES] = [0, 1, 2];
/** Maximum number of 20 ms waits for something that comes at once on an idle machine. */
const PATIENCE = 1500;
const { EAGAIN, EINTR, ENOBUFS, ENOMEM, EBADF } = constants.errno;
const fail = (call, errno, count = 1, skip = 0) => faults.order(call, FAILS, errno, skip, count);
const lose = (count = 1, skip = 0) => faults.order(RECEIVE, LOSES, ENOBUFS, skip, count);
const truncate = (count = 1, skip = 0) => faults.order(RECEIVE, TRUNCATES, 0, skip, count);
/** Returns the number of affected calls so far, and cancels the order. */
function met() {
  const calls = [SEND, RECEIVE, POLL].map((call) => faults.met(call));
  for (const call of [SEND, RECEIVE, POLL]) faults.order(call, FAILS, 0, 0, 0);
  return calls;
}

const kernel = await NftKernel.open();
const conntrack = await NetlinkConntrack.open();
const ref = { family: "ip", table: "own" };
const CLIENT = { source: "10.0.0.1", destination: "10.96.0.1", protocol: 17, sourcePort: 9, destinationPort: 53 };
const SERVER = { source: "10.1.0.1", destination: "10.0.0.1", protocol: 17, sourcePort: 53, destinationPort: 9 };
const flow = { family: "ip", original: CLIENT, reply: SERVER, timeout: 600 };

/** A table with a set of this many addresses. */
function wanted(count) {
  const table = new Table(kernel, { family: "ip", name: "own", ownerMark: "test" });
  // As with a watch: faults hit the transaction or the dump, not a question before it.
  table.listening(true);
  const set = table.packedSet({ set: "s", key: ["ipv4_addr"] });
  for (let i = 0; i < count; i++) set.put(Uint8Array.of(10, 0, i >> 8, i & 255));
  table.chain({ chain: "c", rules: [{ statements: [{ action: "counter" }] }] });
  return { table, set };
}
const elementCount = async () => (await kernel.elements(ref, { set: "s", flags: 0, keyType: 7, keyLen: 4 })).count;
// Works whether or not it exists: "destroy" needs Linux 6.3.
const clean = async () => kernel.commit(["add", "delete"].map((op) => ({ op, kind: "table", ...ref })));

const cases = {
  /** Every system call is interrupted a few times. */
  async interrupted() {
    for (const call of [SEND, RECEIVE, POLL]) fail(call, EINTR, 1000);
    const told = [];
    const handlers = {
      onBatch: () => told.push("batch"),
      onLost: () => told.push("lost"),
      onError: (error) => told.push(error.message),
    };
    const monitor = await kernel.monitor(handlers, { skipOwn: false });
    const { table } = wanted(300);
    await table.apply();
    for (let i = 0; i < PATIENCE && told.length === 0; i++) await sleep(20);
    await monitor.close();
    const elements = await elementCount();
    await conntrack.create(flow);
    let [entries, deleted] = [0, 0];
    await conntrack.dump({}, (some) => void (entries += some.length));
    // Nothing has arrived yet, and the wait for it is interrupted twice.
    fail(RECEIVE, EAGAIN, 2);
    ({ deleted } = await conntrack.deleteMatching({}));
    const calls = met();
    await clean();
    return { told, elements, entries, deleted, met: calls.map((count) => count > 0) };
  },

  /** How often the program checks whether a number still refers to the addon's socket. */
  async looks() {
    const { table } = wanted(3000);
    await table.apply();
    const looks = async (call) => {
      fail(LOOK, 0, 1_000_000);
      await call();
      const count = faults.met(LOOK);
      fail(LOOK, 0, 0);
      return count;
    };
    // The kernel may still be resizing the set, and an interrupted dump is repeated.
    const reads = [await looks(elementCount), await looks(elementCount), await looks(elementCount)];
    const committed = await looks(() => kernel.commit([{ op: "add", kind: "table", ...ref }]));
    await clean();
    return { read: Math.min(...reads), committed };
  },

  /** The transaction takes effect, and its answer is lost or truncated, or the socket is closed before it can be read. */
  answerLost: () => unanswered(() => lose()),
  answerCutOff: () => unanswered(() => truncate()),
  // The first read of the socket is for earlier leftovers.
  socketDiesBeforeTheAnswer: () => unanswered(() => fail(RECEIVE, EBADF, 1, 1)),

  /** Nothing of the transaction reaches the kernel. */
  noMemoryToSend: () => unsent(ENOMEM),
  noBufferToSend: () => unsent(ENOBUFS),
  socketDiesBeforeTheTransaction: () => unsent(EBADF),

  /** The transaction is rejected, and no event comes. */
  async refusalLost() {
    const { id } = await kernel.generation();
    lose();
    const error = await errorOf(() => kernel.commit([{ op: "delete", kind: "table", ...ref }]));
    return { met: met(), code: error.code, same: (await kernel.generation()).id === id };
  },

  /** A read returns everything, or an error. */
  dumpLost: () => unread(() => lose()),
  dumpLostInItsMiddle: () => unread(() => lose(1, 1)),
  dumpCutOff: () => unread(() => truncate()),
  dumpSocketDies: () => unread(() => fail(RECEIVE, EBADF, 1, 1)),

  /** Lost events are reported as lost, a dead socket as an error, and neither stops the other listeners. */
  async events() {
    const heard = [];
    const monitor = await kernel.monitor({
      onBatch: () => heard.push("batch"),
      onLost: () => heard.push("lost"),
      onError: (error) => heard.push(error.code),
    });
    const calls = [];
    // Events after the loss arrive.
    const orders = [
      [() => undefined, 1],
      [() => lose(), 2],
      [() => truncate(), 2],
      [() => fail(RECEIVE, EBADF), 1],
    ];
    for (const [order, told] of orders) {
      const before = heard.length;
      order();
      // Another process, so that this one receives nothing else.
      execFileSync("nft", ["add table ip other; delete table ip other"], { env: { ...process.env, LD_PRELOAD: "" } });
      for (let i = 0; i < PATIENCE && heard.length < before + told; i++) await sleep(20);
      await sleep(20);
      calls.push(met()[RECEIVE]);
    }
    await monitor.close();
    const tables = (await kernel.tables()).length;
    return { met: calls, heard, tables };
  },

  /** Single requests share a socket: a delayed answer must not be mistaken for the answer to another request. */
  async conntrackAnswers() {
    await conntrack.create(flow);
    const outcomes = [];
    for (const order of [() => lose(), () => truncate(), () => fail(RECEIVE, ENOBUFS), () => fail(RECEIVE, EBADF)]) {
      order();
      const error = await errorOf(() => conntrack.lookup("ip", CLIENT));
      const calls = met()[RECEIVE];
      const absent = await conntrack.lookup("ip", { ...CLIENT, sourcePort: 10 });
      const present = await conntrack.lookup("ip", CLIENT);
      outcomes.push([calls, error.code, absent === undefined, present?.original.sourcePort]);
    }
    return outcomes;
  },

  /** Deletions whose answer is lost are reported neither as done nor as failed. */
  async conntrackDeletions() {
    const outcomes = [];
    for (const order of [() => lose(), () => truncate(), () => fail(RECEIVE, ENOBUFS)]) {
      await conntrack.create(flow).catch(() => undefined);
      const found = await conntrack.lookup("ip", CLIENT);
      order();
      const error = await errorOf(() => conntrack.delete(found));
      outcomes.push([met()[RECEIVE], error.code, await conntrack.count()]);
    }
    return outcomes;
  },

  async conntrackDumps() {
    for (let port = 1; port <= 500; port++) {
      await conntrack.create({
        ...flow,
        original: { ...CLIENT, sourcePort: port },
        reply: { ...SERVER, destinationPort: port },
      });
    }
    const outcomes = [];
    for (const order of [() => lose(), () => lose(1, 1), () => truncate(1, 1), () => fail(RECEIVE, ENOBUFS, 1, 1)]) {
      order();
      const error = await errorOf(() => conntrack.dump({}, () => undefined));
      const calls = met()[RECEIVE];
      let entries = 0;
      await conntrack.dump({}, (some) => void (entries += some.length));
      outcomes.push([calls, error.code, entries]);
    }
    return outcomes;
  },
};

async function unanswered(order) {
  const { table, set } = wanted(300);
  await table.apply();
  const { id } = await kernel.generation();
  const port = kernel.portId;
  set.put(Uint8Array.of(10, 9, 9, 9));
  order();
  const { resynced } = await table.apply();
  const calls = met()[RECEIVE];
  // Exactly once: not repeated because the first outcome was unknown.
  const transactions = (await kernel.generation()).id - id;
  const again = (await table.apply()).transactions;
  const elements = await elementCount();
  const samePort = kernel.portId === port;
  await clean();
  return { met: calls, resynced, transactions, again, elements, samePort };
}

async function unsent(errno) {
  const { table, set } = wanted(300);
  await table.apply();
  set.put(Uint8Array.of(10, 9, 9, 9));
  fail(SEND, errno);
  const error = await errorOf(() => table.apply());
  const calls = met()[SEND];
  const before = await elementCount();
  await table.apply();
  const after = await elementCount();
  await clean();
  return { met: calls, code: error.code, before, after };
}

async function unread(order) {
  // More than fit into one datagram.
  const { table } = wanted(3000);
  await table.apply();
  order();
  const error = await errorOf(elementCount);
  const calls = met()[RECEIVE];
  const elements = await elementCount();
  table.invalidate("test");
  order();
  const first = await errorOf(() => table.apply());
  met();
  const { transactions } = await table.apply();
  await clean();
  return { met: calls, code: error.code, errno: error.errno, elements, first: first.code, transactions };
}

const outcome = {};
for (const [name, run] of Object.entries(cases)) {
  outcome[name] = await run();
}
await Promise.all([kernel.close(), conntrack.close()]);
report(outcome);
