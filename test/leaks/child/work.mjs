/**
 * The leak tests' work with the addon, through the same classes as the program. Each kind of work restores everything,
 * and `repeat` does it `n` times.
 */
import { NetlinkConntrack } from "../../../dist/nft/conntrack/netlink-conntrack.js";
import { loadAddon } from "../../../dist/nft/kernel/addon.js";
import { NftKernel } from "../../../dist/nft/kernel/nft-kernel.js";
import { kernelSamples } from "../../native/samples.ts";
import { errorReply, mutate, Random, spoil } from "../../native/spoil.ts";
import { testAddon } from "../../native/test-addon.ts";

export const addon = loadAddon();

/** NFT_SET_MAP, NFT_SET_TIMEOUT and NFT_SET_EVAL; NFT_DATA_VERDICT; nft's number of the type ipv4_addr. */
const [MAP, TIMEOUT, EVAL, DATA_VERDICT, IPV4_ADDR] = [8, 16, 32, 0xffffff00, 7];
const set = (name, more = {}) => ({ set: name, flags: 0, keyType: IPV4_ADDR, keyLen: 4, ...more });

function addresses(count, from = 0x0a000000) {
  const bytes = new Uint8Array(count * 4);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < count; i++) view.setUint32(i * 4, from + i);
  return { count, keyLen: 4, dataLen: 0, bytes };
}

/** Fails unless the call fails: requests that must be rejected must not succeed. */
async function refused(promise) {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  );
  if (error === undefined) throw new Error("was not refused");
}

function thrown(call) {
  try {
    call();
  } catch {
    return;
  }
  throw new Error("was not thrown");
}

/**
 * Prepares objects for the work: a network namespace with a table that has chains, rules of every expression, sets and
 * elements, and a few hundred connections to read. Labs in one namespace differ in name and octet.
 */
export async function prepareLab(netns, name, octet) {
  const ref = { family: "ip", table: name };
  const kernel = await NftKernel.open({ netns });
  const conntrack = await NetlinkConntrack.open({ netns });
  await kernel.commit([
    { op: "add", kind: "table", ...ref, userdata: new Uint8Array(9) },
    { op: "add", kind: "chain", ...ref, chain: "base", base: { type: "nat", hook: 3, priority: -100 } },
    { op: "add", kind: "chain", ...ref, chain: "leaf" },
    { op: "add", kind: "set", ...ref, ...set("s", { flags: TIMEOUT | EVAL, size: 100 }) },
    { op: "add", kind: "set", ...ref, ...set("m", { flags: MAP, dataType: DATA_VERDICT }) },
    { op: "add", kind: "set", ...ref, ...set("many", { userdata: new Uint8Array(5) }) },
    { op: "add", kind: "elements", ...ref, set: "many", elements: addresses(2000) },
  ]);
  for (const { before = [], expr } of kernelSamples) {
    const rule = { op: "add", kind: "rule", ...ref, chain: "base", exprs: [...before, expr] };
    // ENOENT: this kernel lacks the expression.
    await kernel.commit([{ ...rule, userdata: new Uint8Array(3) }]).catch((error) => {
      if (error.errno !== "ENOENT") throw error;
    });
  }
  const lab = { name, octet, netns, ref, kernel, conntrack, random: new Random(1) };
  for (let i = 1; i <= 300; i++) await conntrack.create(connection(lab, i));
  return lab;
}

/** Removes everything again. */
export async function closeLab({ octet, ref, kernel, conntrack }) {
  await conntrack.deleteMatching({ original: { source: `10.${octet}.0.0/16` } });
  await kernel.commit([{ op: "delete", kind: "table", ...ref }]);
  await Promise.all([kernel.close(), conntrack.close()]);
}

/** A UDP connection through a VIP, unique for each number and each `octet` of a lab. */
function connection({ octet }, number) {
  const address = `10.${octet}.${number >> 8}.${number & 255}`;
  const original = { source: address, destination: "10.96.0.1", protocol: 17, sourcePort: 1000, destinationPort: 53 };
  const reply = { source: "10.1.0.1", destination: address, protocol: 17, sourcePort: 5353, destinationPort: 1000 };
  // The entries outlast the slowest run, because rejected requests and dumps concern them.
  const timeout = 86_400;
  return { family: "ip", original, reply, timeout, mark: 7, labels: new Uint8Array(16).fill(1) };
}

const quiet = {
  onBatch: () => undefined,
  onLost: () => undefined,
  onError: () => undefined,
  onChange: () => undefined,
  onEvents: () => undefined,
};
const listening = { ...quiet, onNew: () => undefined, onDestroy: () => undefined };

const transactions = {
  "transactions that the kernel takes": async ({ kernel, ref, name }, i) => {
    const some = { op: "add", kind: "elements", ...ref, set: "many", elements: addresses(20, 0x0b000000) };
    if (i % 50 !== 0) return kernel.commit([some, { ...some, op: "delete" }]);
    const other = { family: "ip6", table: `${name}-other` };
    const exprs = kernelSamples.slice(0, 1).map(({ expr }) => expr);
    return kernel.commit([
      { op: "add", kind: "table", ...other },
      { op: "add", kind: "chain", ...other, chain: "c" },
      { op: "add", kind: "rule", ...other, chain: "c", exprs, userdata: new Uint8Array(3) },
      { op: "add", kind: "set", ...other, set: "__set%d", id: 1, flags: 3, keyType: IPV4_ADDR, keyLen: 4 },
      {
        op: "add",
        kind: "rule",
        ...other,
        chain: "c",
        exprs: [...exprs, { type: "lookup", set: "__set%d", setId: 1, sreg: 1 }],
      },
      { op: "delete", kind: "table", ...other },
    ]);
  },
  "transactions that the kernel refuses": async ({ kernel, ref, name }, i) => {
    const absent = { op: "delete", kind: "table", family: "ip", table: `${name}-absent` };
    const wrong = [
      [absent],
      [absent, { ...absent, table: "b" }, { op: "create", kind: "chain", ...ref, chain: "leaf" }],
      [{ op: "delete", kind: "elements", ...ref, set: "many", elements: addresses(3, 0x0c000000) }],
      [{ op: "create", kind: "elements", ...ref, set: "many", elements: addresses(3) }],
      [
        {
          op: "add",
          kind: "rule",
          ...ref,
          chain: "leaf",
          exprs: [{ type: "opaque", name: "nonsense", data: new Uint8Array(0) }],
        },
      ],
    ];
    return refused(kernel.commit(wrong[i % wrong.length]));
  },
  "transactions given up before the kernel has them": async ({ kernel, ref, random }, i) => {
    const big = { op: "add", kind: "elements", ...ref, set: "many", elements: addresses(2000) };
    const rule = { op: "add", kind: "rule", ...ref, chain: "leaf", exprs: kernelSamples.map(({ expr }) => expr) };
    switch (i % 6) {
      case 0:
        return refused(kernel.commit([big], { expectGeneration: 1 }));
      case 1:
        return kernel.commit([{ op: "flush", kind: "rule", ...ref }], { dryRun: true });
      case 2:
        return refused(kernel.commit([rule, big, { ...rule, exprs: [...rule.exprs, { type: "none" }] }]));
      case 3:
        // Partly read, partly copied, and dropped.
        addon.prepareBatch(addon.createBatch([rule, big, big, big]), 0);
        return;
      case 4:
        addon.createBatch([rule, big]);
        return;
      default:
        return kernel.commit([spoil(rule, random), spoil(big, random)], { dryRun: true }).catch(() => undefined);
    }
  },
};

const dumps = {
  "dumps read to the end": async ({ kernel, ref }, i) => {
    switch (i % 7) {
      case 0:
        return kernel.tables();
      case 1:
        return kernel.chains(ref);
      case 2:
        return kernel.rules(ref, "base");
      case 3:
        return kernel.sets(ref);
      case 4:
        return kernel.generation();
      case 5:
        return kernel.interfaces.addresses();
      default:
        return kernel.elements(ref, set("many"));
    }
  },
  "dumps that fail": async ({ kernel, ref }, i) => {
    const absent = { family: "ip", table: "absent" };
    if (i % 3 === 0) return refused(kernel.elements(absent, set("many")));
    if (i % 3 === 1) return refused(kernel.elements(ref, set("absent")));
    // The kernel's set differs from the requested one.
    return refused(kernel.elements(ref, set("many", { keyLen: 16 })));
  },
  "dumps given up half-way": async ({ ref, netns }, i) => {
    const handle = await addon.open({ netns });
    const dump = i % 2 === 0 ? addon.elements(handle, ref, set("many")) : addon.rules(handle, ref);
    addon.close(handle);
    await dump;
  },
};

const monitors = {
  "monitors of nf_tables": async ({ kernel, ref }, i) => {
    const monitor = await kernel.monitor(quiet, i % 2 === 0 ? { skipOwn: false, tables: [ref] } : {});
    // The end may come before or after the report.
    if (i % 4 === 0) await kernel.commit([{ op: "flush", kind: "rule", ...ref, chain: "leaf" }]);
    await monitor.close();
    await monitor.close();
  },
  "monitors of addresses": async ({ kernel }) => {
    const monitor = await kernel.interfaces.watchAddresses(quiet);
    await monitor.close();
  },
  "listeners to packet traces": async ({ kernel }) => {
    const monitor = await kernel.trace(quiet);
    await monitor.close();
  },
  "streams of conntrack events": async (lab, i) => {
    const stream = await lab.conntrack.events(listening);
    if (i % 4 === 0) {
      const one = connection(lab, 60_000);
      await lab.conntrack.create(one);
      await lab.conntrack.deleteMatching({ original: { source: one.original.source } });
    }
    await stream.close();
  },
};

const conntracks = {
  "entries of conntrack, made, found, changed and deleted": async (lab, i) => {
    const { conntrack } = lab;
    const one = connection(lab, 1000 + (i % 1000));
    await conntrack.create(one);
    const found = await conntrack.lookup("ip", one.original);
    await conntrack.update(found, { timeout: 700, mark: { value: 9 } });
    if (!(await conntrack.delete(found))) throw new Error("was not there");
    await refused(conntrack.update(found, { timeout: 5 }));
    if ((await conntrack.lookup("ip", one.original)) !== undefined) throw new Error("is still there");
  },
  "entries of conntrack that are refused": async (lab) => refused(lab.conntrack.create(connection(lab, 1))),
  "dumps of conntrack": async ({ conntrack }, i) => {
    switch (i % 4) {
      case 0:
        return conntrack.dump({}, () => undefined);
      case 1:
        return conntrack.dump({ family: "ip", original: { destinationPort: 53 } }, () => undefined);
      case 2:
        return conntrack.stats();
      default:
        return conntrack.count();
    }
  },
  "dumps of conntrack given up half-way": async ({ conntrack, netns }, i) => {
    const everything = new Uint8Array(208);
    if (i % 2 === 0) {
      return refused(
        conntrack.dump({}, () => {
          throw new Error("enough");
        }),
      );
    }
    const table = await addon.conntrackOpen({ netns });
    const dump = addon.conntrackDump(table, everything);
    addon.conntrackClose(table);
    // Started and dropped, or not even started.
    if (i % 4 === 1) await addon.conntrackRead(dump);
  },
  "deletions of what matches": async (lab) => {
    const one = connection(lab, 50_000);
    await lab.conntrack.create(one);
    const { deleted } = await lab.conntrack.deleteMatching({ original: { source: one.original.source } });
    if (deleted !== 1) throw new Error(`${deleted} deleted`);
  },
};

const rest = {
  "connections opened, closed, forgotten and refused": async (_lab, i) => {
    switch (i % 4) {
      case 0: {
        const kernel = await NftKernel.open({ sendBufferBytes: 1 << 16 });
        await kernel.tables();
        return kernel.close();
      }
      case 1: {
        const kernel = await NftKernel.open({ netns: "/proc/self/ns/net" });
        return kernel.close();
      }
      case 2:
        return refused(NftKernel.open({ netns: "/nowhere" }));
      default:
        // Not closed: the garbage collector must end it.
        await addon.open();
        return addon.conntrackOpen();
    }
  },
  "inotify instances, closed by hand": async (_lab, i) => {
    const inotify = addon.inotifyOpen(() => undefined);
    addon.inotifyAdd(inotify, "/", 0x100);
    if (i % 2 === 0) addon.inotifyAwait(inotify);
    addon.inotifyRead(inotify);
    addon.inotifyClose(inotify);
    await new Promise(setImmediate);
  },
  "bytes encoded and decoded, right and wrong": async ({ ref, random }) => {
    const ops = [
      { op: "add", kind: "rule", ...ref, chain: "leaf", exprs: kernelSamples.map(({ expr }) => expr) },
      { op: "add", kind: "elements", ...ref, set: "many", elements: addresses(20) },
    ];
    const bytes = testAddon.encodeBatch(ops);
    testAddon.decodeMessages(bytes);
    testAddon.faultsOf(ops, errorReply(2, 30));
    for (const wrong of [mutate(bytes, random), mutate(bytes, random)]) {
      // Both results are fine: decoded as far as possible, or rejected.
      try {
        testAddon.decodeMessages(wrong);
        testAddon.decodeElements(set("many"), wrong);
      } catch {
        continue;
      }
    }
    thrown(() => testAddon.encodeBatch([...ops, { op: "add" }]));
  },
};

/** Name and body of each kind of work. */
export const kinds = Object.entries({ ...transactions, ...dumps, ...monitors, ...conntracks, ...rest });

/** Does one kind of work `count` times, in all labs in parallel: in a single one the kernel's waiting times add up. */
export async function repeat(work, labs, count) {
  let next = 0;
  const one = async (lab) => {
    while (next < count) await work(lab, next++);
  };
  await Promise.all(labs.map(one));
}
