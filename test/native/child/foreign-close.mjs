/**
 * Closes the addon's descriptors behind its back, as a bug elsewhere in the process would, reuses their numbers for
 * other files or not at all, and continues. Prints the results by case.
 */
import { execFileSync } from "node:child_process";
import {
  closeSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { NetlinkConntrack } from "../../../dist/nft/conntrack/netlink-conntrack.js";
import { NftKernel } from "../../../dist/nft/kernel/nft-kernel.js";
import { errorOf, report } from "./addon.mjs";

const THEIRS = "another's file";
/** Maximum number of 20 ms waits. */
const PATIENCE = 1500;
const directory = mkdtempSync(path.join(os.tmpdir(), "nft-proxier-"));
writeFileSync(path.join(directory, "theirs"), THEIRS);

/** Descriptors of this process's netfilter sockets, by number, with their netlink port and whether they listen. */
function sockets() {
  const rows = readFileSync("/proc/self/net/netlink", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, protocol]) => protocol === "12")
    .map((row) => ({
      name: `socket:[${row.at(-1)}]`,
      port: Number(row[2]),
      listens: Number.parseInt(row[3], 16) !== 0,
    }));
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const name = readlinkSync(`/proc/self/fd/${fd}`);
      return rows.filter((row) => row.name === name).map((row) => ({ ...row, fd: Number(fd) }));
    } catch {
      return []; // closed since it was listed
    }
  });
}

/** Opens another file under each of these numbers, which must be free. */
function take(fds) {
  const spare = [];
  const left = new Set(fds);
  while (left.size > 0) {
    const fd = openSync(path.join(directory, "theirs"), "r");
    if (!left.delete(fd)) spare.push(fd);
    if (spare.length > 200) throw new Error(`not free: ${[...left].join(" ")}`);
  }
  spare.forEach((fd) => closeSync(fd));
}

/** Returns the content of the other file under a number. */
function found(fd) {
  try {
    const buffer = Buffer.alloc(100);
    if (!fstatSync(fd).isFile()) return "no file";
    return buffer.toString("utf8", 0, readSync(fd, buffer, 0, 100, 0));
  } catch (error) {
    return error.code;
  }
}

/** Closes the addon's sockets that `choose` selects, and reuses their numbers for files on request. */
function steal(choose, reuse) {
  const chosen = sockets().filter(choose);
  const fds = chosen.map(({ fd }) => fd);
  fds.forEach((fd) => closeSync(fd));
  if (reuse) take(fds);
  return fds;
}

/** Returns the number of changed files; closes the others. */
function harmed(fds) {
  const good = fds.filter((fd) => found(fd) === THEIRS);
  good.forEach((fd) => closeSync(fd));
  return fds.length - good.length;
}

const CLIENT = { source: "10.0.0.1", destination: "10.96.0.1", protocol: 17, sourcePort: 9, destinationPort: 53 };
const SERVER = { source: "10.1.0.1", destination: "10.0.0.1", protocol: 17, sourcePort: 53, destinationPort: 9 };
const flow = { family: "ip", original: CLIENT, reply: SERVER, timeout: 600 };
const ref = { family: "ip", table: "own" };

/** Runs the calls in turn. Returns "ok" or the error's code for each. */
async function outcomes(calls) {
  const all = [];
  for (const call of calls) {
    const { code, message } = await errorOf(call);
    all.push(code === "none" ? "ok" : `${code} ${message}`);
  }
  return all;
}

async function reads(reuse) {
  const kernel = await NftKernel.open();
  await Promise.all([kernel.tables(), kernel.tables(), kernel.tables()]);
  const stolen = steal(({ port }) => port !== kernel.portId, reuse);
  const after = await outcomes([() => kernel.tables(), () => kernel.generation(), () => kernel.chains(ref)]);
  // Also closes the pool's idle sockets.
  const idle = steal(({ port }) => port !== kernel.portId, reuse);
  await kernel.close();
  await collected();
  return { some: stolen.length > 0 && idle.length > 0, after, harmed: reuse ? harmed([...stolen, ...idle]) : 0 };
}

/** The addon frees a closed connection when the last call on it has ended. */
const collected = async () => {
  for (let i = 0; i < 5; i++) {
    globalThis.gc();
    await sleep(10);
  }
};

async function tracking(reuse) {
  const conntrack = await NetlinkConntrack.open();
  await Promise.all([conntrack.count(), conntrack.count(), conntrack.dump({}, () => undefined)]);
  const stolen = steal(() => true, reuse);
  const after = await outcomes([
    () => conntrack.count(),
    () => conntrack.create(flow),
    () => conntrack.lookup("ip", CLIENT),
    () => conntrack.dump({}, () => undefined),
    () => conntrack.deleteMatching({}),
  ]);
  const idle = steal(() => true, reuse);
  const again = await outcomes([() => conntrack.deleteMatching({}), () => conntrack.count()]);
  const last = steal(() => true, reuse);
  await conntrack.close();
  await collected();
  const all = [...stolen, ...idle, ...last];
  return { some: stolen.length > 0 && idle.length > 0, after: [...after, ...again], harmed: reuse ? harmed(all) : 0 };
}

const cases = {
  readsGone: () => reads(false),
  readsReused: () => reads(true),
  conntrackGone: () => tracking(false),
  conntrackReused: () => tracking(true),

  /** A socket's number is reused by another connection's socket. */
  async reusedByAnotherConnection() {
    const kernel = await NftKernel.open();
    await Promise.all([kernel.tables(), kernel.tables()]);
    steal(() => true, false);
    const other = await NftKernel.open();
    const after = await outcomes([
      () => kernel.tables(),
      () => kernel.commit([{ op: "add", kind: "table", ...ref }]),
      () => kernel.commit([{ op: "add", kind: "table", ...ref }]),
    ]);
    await kernel.close();
    await collected();
    const others = await outcomes([
      () => other.tables(),
      () => other.commit([{ op: "destroy", kind: "table", ...ref }]),
    ]);
    await other.close();
    return { after: after.map((text) => text.split(" ")[0]), others };
  },

  /** The number of the namespace's descriptor is reused: no answer may come from the namespace of the process. */
  async namespace() {
    const kernel = await NftKernel.open({ netns: "/proc/self/ns/net" });
    const [namespace] = readdirSync("/proc/self/fd").filter((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`).startsWith("net:[");
      } catch {
        return false; // closed since it was listed
      }
    });
    closeSync(Number(namespace));
    take([Number(namespace)]);
    // This call opens its own socket.
    const after = await outcomes([() => kernel.interfaces.names()]);
    await kernel.close();
    await collected();
    return { after, harmed: harmed([Number(namespace)]) };
  },

  /** A batch for which the send buffer must be raised, on a closed socket. */
  async largeCommit() {
    const kernel = await NftKernel.open();
    const [stolen] = steal(({ port }) => port === kernel.portId, true);
    const set = { op: "add", kind: "set", ...ref, set: "s", flags: 0, keyType: 7, keyLen: 4 };
    const bytes = new Uint8Array(Uint32Array.from({ length: 15_000 }, (_, i) => i).buffer);
    const elements = {
      op: "add",
      kind: "elements",
      ...ref,
      set: "s",
      elements: { count: 15_000, keyLen: 4, dataLen: 0, bytes },
    };
    const ops = [{ op: "add", kind: "table", ...ref }, set, elements];
    const after = await outcomes([() => kernel.commit(ops), () => kernel.commit(ops)]);
    await kernel.commit([{ op: "destroy", kind: "table", ...ref }]);
    await kernel.close();
    return { after: after.map((text) => text.split(" ")[0]), harmed: harmed([stolen]) };
  },

  /**
   * Listeners cannot continue: they report that at the next event, and do not touch the new owners of their numbers.
   */
  async listeners() {
    const kernel = await NftKernel.open();
    const conntrack = await NetlinkConntrack.open();
    const told = [];
    const handlers = (name) => ({
      onBatch: () => told.push(`${name} batch`),
      onNew: () => told.push(`${name} new`),
      onDestroy: () => told.push(`${name} destroy`),
      onLost: () => told.push(`${name} lost`),
      onError: (error) => told.push(`${name} ${error.code} ${error.errno}`),
    });
    const monitor = await kernel.monitor(handlers("nf_tables"));
    const watch = await conntrack.events(handlers("conntrack"));
    const stolen = steal(({ listens }) => listens, true);
    execFileSync("nft", ["add table ip other; delete table ip other"]);
    await conntrack.create(flow);
    for (let i = 0; i < PATIENCE && told.length < 2; i++) await sleep(20);
    await monitor.close();
    await watch.close();
    await Promise.all([kernel.close(), conntrack.close()]);
    await collected();
    return { told, stolen: stolen.length, harmed: harmed(stolen) };
  },
};

const outcome = {};
for (const [name, run] of Object.entries(cases)) {
  outcome[name] = await run().catch((error) => `${error.code} ${error.message}`);
}
rmSync(directory, { recursive: true });
report(outcome);
