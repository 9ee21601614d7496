/** nf_tables in memory, for tests: the kernel's own answers without the kernel. */
import { ElementFlag, SetFlag, TableFlag } from "../kernel/constants.js";
import { CommitCounts } from "../kernel/commit-counts.js";
import { batchLayout } from "../kernel/element-batch.js";
import { KernelError, type Fault } from "../kernel/errors.js";
import { dumpText } from "./dump-text.js";
import { runBatch } from "./batch.js";
import { carryCounts } from "./ops/carry.js";
import { dumpedObject, resetObject } from "./ops/objects.js";
import {
  byAge,
  isExpired,
  NamespaceState,
  ObjectState,
  Refusal,
  tableId,
  type ChainState,
  type DeletedMaps,
  type ElementState,
  type SetState,
  type TableState,
} from "./state/state.js";
import type {
  ChainInfo,
  ChangeBatch,
  CommitOptions,
  CommitResult,
  ElementBatch,
  Family,
  Generation,
  Kernel,
  Monitor,
  MonitorHandlers,
  MonitorOptions,
  ObjectDump,
  ObjectInfo,
  ObjectRef,
  Op,
  RuleInfo,
  SetDump,
  SetInfo,
  TableInfo,
  TableRef,
  Verdict,
} from "../kernel/kernel.js";

/** Properties of a fake namespace, and of the process that uses it. */
export interface FakeKernelOptions {
  /** The clock for timeouts of elements, in ms. Default: `performance.now`, which `Table` uses too. */
  readonly now?: () => number;
  /** The process that commits. `TableWatch` reports it. Default: this process, with the name "fake". */
  readonly process?: { readonly pid: number; readonly name: string };
  /** How elements of a deleted verdict map treat their chains, which differs between kernels. Default: "let go", as since Linux 6.4. */
  readonly deletedMaps?: DeletedMaps;
}

/** An error to inject with `FakeKernel.failNext`. */
export interface InjectedFault {
  /** Selects the operation of a batch that is rejected. A batch without such an operation passes, and the fault waits for the next. */
  readonly when: (op: Op, index: number) => boolean;
  /** Symbolic: "ENOMEM". */
  readonly errno: string;
  readonly text?: string;
  /** Index of the element that the error names. */
  readonly element?: number;
}

interface Listener {
  readonly handlers: MonitorHandlers;
  readonly tables: ReadonlySet<string> | undefined;
  /** The port whose events are skipped. */
  readonly skip: number | undefined;
}

/** State that all views of one namespace share. */
export interface FakeNamespace {
  readonly state: NamespaceState;
  readonly listeners: Set<Listener>;
  readonly now: () => number;
  lastCommitter: { readonly pid: number; readonly name: string } | undefined;
}

const FIRST_PORT = 1000;

/**
 * A `Kernel` in memory: a network namespace with nf_tables, but without packets. It needs neither Linux nor rights.
 *
 * It keeps and lists objects as Linux 6.18 does, and refuses missing, existing and used ones with the same error codes. One conformance suite
 * runs on this class and on the real kernel. Expressions and attributes are not checked: registers, lengths, flags, hooks, loops of jumps.
 * Tests can request the rare failures of real kernels: refused operations, lost replies and events, interrupted dumps, a dead socket, delays.
 */
export class FakeKernel implements Kernel {
  /** The port of this connection. `loseSocket` and a commit change it. */
  portId: number;
  readonly committed = new CommitCounts();
  /** Operations of every batch that this object committed, oldest first, without dry runs and rejected ones. */
  readonly commits: (readonly Op[])[] = [];
  /** @internal */
  protected readonly shared: FakeNamespace;
  /** @internal */
  protected readonly process: { readonly pid: number; readonly name: string };
  private readonly own = new Set<Listener>();
  private readonly faults: InjectedFault[] = [];
  private repliesToLose = 0;
  private socketDies = false;
  private dumpsToInterrupt = 0;
  private latency: ((action: string) => Promise<void> | void) | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private closed = false;

  /** Makes an empty namespace. `asOther` passes the namespace and the port. */
  constructor(options: FakeKernelOptions = {}, shared?: FakeNamespace, portId?: number) {
    this.shared = shared ?? {
      state: new NamespaceState(FIRST_PORT, options.deletedMaps ?? "let go"),
      listeners: new Set(),
      now: options.now ?? (() => performance.now()),
      lastCommitter: undefined,
    };
    this.portId = portId ?? this.shared.state.nextPort();
    this.process = options.process ?? { pid: process.pid, name: "fake" };
  }

  /** Another socket in the same namespace: this one takes its commits for those of another process. */
  asOther(portId?: number, name = "other"): FakeKernel {
    const process = { pid: this.process.pid + 1, name };
    return new FakeKernel({ process }, this.shared, portId);
  }

  /**
   * Returns all tables as text, for comparisons in tests. Tables, sets, elements and chains are sorted. Rules are lists of kernel expressions, with
   * bytes in hex. Handles, counts and remaining times are omitted.
   */
  dump(): string {
    return dumpText(this.shared.state);
  }

  /** Makes the next commit with an operation that `when` accepts fail at that operation. */
  failNext(fault: InjectedFault): void {
    this.faults.push(fault);
  }
  /** Makes the next commit take effect, but fail with "unknown-outcome". */
  loseReply(): void {
    this.repliesToLose++;
  }
  /** Makes the next commit find its socket closed: nothing takes effect, and there is a new socket with another port. */
  loseSocket(): void {
    this.socketDies = true;
  }
  /** Reports lost events to all monitors of the namespace. */
  loseEvents(): void {
    for (const { handlers } of this.shared.listeners) queueMicrotask(() => handlers.onLost());
  }
  /** Ends all monitors of the namespace with this error. */
  breakMonitors(error: Error): void {
    for (const { handlers } of this.shared.listeners) queueMicrotask(() => handlers.onError(error));
    this.shared.listeners.clear();
  }
  /** Makes the next `count` dumps of this object fail with "interrupted". */
  interruptDumps(count = 1): void {
    this.dumpsToInterrupt += count;
  }
  /** Sets a function that is called and awaited before each commit and dump of this object takes effect, with its subject. */
  setLatency(wait: ((action: string) => Promise<void> | void) | undefined): void {
    this.latency = wait;
  }
  /** Does `work` once, before the next call of this action ("commit", "dump rules"). */
  beforeNext(action: string, work: () => Promise<unknown> | void): void {
    this.setLatency(async (called) => {
      if (called !== action) return;
      this.setLatency(undefined);
      await work();
    });
  }

  commit(ops: readonly Op[], options: CommitOptions = {}): Promise<CommitResult> {
    const result = this.last.then(() => this.commitNow(ops, options));
    this.last = result.catch(() => undefined);
    return result;
  }

  private async commitNow(ops: readonly Op[], options: CommitOptions): Promise<CommitResult> {
    this.checkOpen("commit");
    await this.latency?.("commit");
    this.checkOpen("commit");
    const { state } = this.shared;
    if (this.socketDies) {
      this.socketDies = false;
      this.disown();
      this.portId = state.nextPort();
      throw new KernelError("system", "the socket is closed", { action: "commit", errno: "EBADF" });
    }
    if (ops.length === 0) return { bytes: 0, messages: 0, kernelNs: 0, encodeNs: 0 };
    if (options.expectGeneration !== undefined && options.expectGeneration !== state.generation) {
      throw new KernelError("stale", "the ruleset's generation differs from the expected one", {
        action: "commit",
        errno: "ERESTART",
      });
    }
    const started = performance.now();
    const inject = (op: Op, index: number): Refusal | undefined => this.injected(op, index);
    const dryRun = options.dryRun === true;
    const sent = carryCounts(state, ops);
    const outcome = runBatch(state, sent, { portId: this.portId, now: this.shared.now(), dryRun, inject });
    if (outcome.refused) throw refused(ops, outcome.errno, outcome.faults);
    if (!dryRun) {
      this.commits.push(ops);
      if (outcome.events.length > 0) this.announce(outcome.events);
    }
    if (!dryRun && this.repliesToLose === 0) this.committed.add(ops);
    if (!dryRun && this.repliesToLose > 0) {
      this.repliesToLose--;
      throw new KernelError("unknown-outcome", "the kernel's reply was lost", { action: "commit", errno: "ENOBUFS" });
    }
    const bytes = ops.reduce((sum, op) => sum + 64 + ("elements" in op ? op.elements.bytes.length : 0), 0);
    const kernelNs = Math.round((performance.now() - started) * 1e6);
    return { bytes, messages: ops.length + 2, kernelNs, encodeNs: 0 };
  }

  private injected(op: Op, index: number): Refusal | undefined {
    const at = this.faults.findIndex((fault) => fault.when(op, index));
    if (at < 0) return undefined;
    const [fault] = this.faults.splice(at, 1);
    return new Refusal(fault.errno, fault.element, fault.text);
  }

  private announce(events: ChangeBatch["events"]): void {
    const generation = this.shared.state.generation;
    this.shared.lastCommitter = this.process;
    for (const { handlers, tables, skip } of this.shared.listeners) {
      const seen =
        skip === this.portId ? [] : events.filter((event) => tables === undefined || tables.has(tableId(event)));
      const batch: ChangeBatch = { generation, portId: this.portId, process: this.process, events: seen };
      queueMicrotask(() => handlers.onBatch(batch));
    }
  }

  async generation(): Promise<Generation> {
    this.checkOpen("read the generation");
    const { state, lastCommitter } = this.shared;
    await Promise.resolve();
    return { id: state.generation, ...lastCommitter };
  }

  async tables(family?: Family): Promise<TableInfo[]> {
    await this.beginDump("dump tables");
    return this.shared.state.ofFamily(family).map(tableInfo);
  }

  async chains(ref: TableRef, names?: readonly string[]): Promise<ChainInfo[]> {
    await this.beginDump("dump chains");
    return byAge(this.shared.state.find(ref)?.chains ?? new Map<string, ChainState>())
      .filter(({ name }) => names === undefined || names.includes(name))
      .map((chain) => chainInfo(ref, chain));
  }

  async rules(ref: TableRef, chain?: string): Promise<RuleInfo[]> {
    await this.beginDump("dump rules");
    const chains = byAge(this.shared.state.find(ref)?.chains ?? new Map<string, ChainState>()).filter(
      ({ name }) => chain === undefined || name === chain,
    );
    return chains.flatMap(({ name, rules }) =>
      rules.map(({ handle, exprs, userdata }) => ({
        ...refOf(ref),
        chain: name,
        handle,
        exprs,
        userdata,
      })),
    );
  }

  async sets(ref: TableRef): Promise<SetDump[]> {
    await this.beginDump("dump sets");
    return byAge(this.shared.state.find(ref)?.sets ?? new Map<string, SetState>()).map((set) => setDump(ref, set));
  }

  async objects(ref: TableRef): Promise<ObjectInfo[]> {
    await this.beginDump("dump objects");
    const table = this.shared.state.find(ref);
    return [
      ...byAge(table?.objects ?? new Map<string, ObjectState>()).map(objectInfo),
      ...[...(table?.flowtables.keys() ?? [])].map((flowtable): ObjectInfo => ({ kind: "flowtable", flowtable })),
    ];
  }

  async object(ref: TableRef, { object, objType }: ObjectRef, reset = false): Promise<ObjectDump | undefined> {
    await this.beginDump("read object");
    const found = this.shared.state.find(ref)?.objects.get(`${objType} ${object}`);
    if (found === undefined) return undefined;
    const info = objectInfo(found);
    if (reset) resetObject(found);
    return info;
  }

  async elements(ref: TableRef, info: SetInfo): Promise<ElementBatch> {
    await this.beginDump("dump elements");
    const set = this.shared.state.find(ref)?.sets.get(info.set);
    if (set === undefined)
      throw new KernelError("not-found", `no set ${info.set} in table ${tableId(ref)}`, {
        action: "dump elements",
        errno: "ENOENT",
      });
    return pack(set, this.shared.now());
  }

  async monitor(handlers: MonitorHandlers, options: MonitorOptions = {}): Promise<Monitor> {
    this.checkOpen("monitor");
    await Promise.resolve();
    const tables = options.tables === undefined ? undefined : new Set(options.tables.map(tableId));
    const listener: Listener = { handlers, tables, skip: options.skipOwn === false ? undefined : this.portId };
    this.shared.listeners.add(listener);
    this.own.add(listener);
    const stop = (): void => {
      this.shared.listeners.delete(listener);
      this.own.delete(listener);
    };
    return {
      close: () => {
        stop();
        return Promise.resolve();
      },
    };
  }

  /** Like the end of the socket: tables that it owns are deleted, or stay without an owner if they are persistent. */
  async close(): Promise<void> {
    await this.last;
    if (this.closed) return;
    this.closed = true;
    for (const listener of this.own) this.shared.listeners.delete(listener);
    this.disown();
  }

  /** nft_rcv_nl_event */
  private disown(): void {
    const { tables } = this.shared.state;
    for (const [id, table] of tables) {
      if (table.owner !== this.portId) continue;
      if ((table.flags & TableFlag.persist) === 0) {
        tables.delete(id);
      } else {
        table.owner = undefined;
        table.flags &= ~TableFlag.owner;
      }
    }
  }

  private async beginDump(action: string): Promise<void> {
    this.checkOpen(action);
    await this.latency?.(action);
    this.checkOpen(action);
    if (this.dumpsToInterrupt === 0) return;
    this.dumpsToInterrupt--;
    throw new KernelError("interrupted", "the ruleset kept changing during the dump", { action, errno: "EINTR" });
  }

  private checkOpen(action: string): void {
    if (this.closed) throw new KernelError("closed", "the kernel connection is closed", { action });
  }
}

function refused(ops: readonly Op[], errno: string, faults: readonly Fault[]): KernelError {
  const [first] = faults;
  const where = first === undefined ? "the batch" : `operation ${first.op} (${ops[first.op].op} ${ops[first.op].kind})`;
  return new KernelError("refused", `the kernel refused ${where}: ${errno}`, { action: "commit", errno, faults });
}

function refOf({ family, table }: TableRef): TableRef {
  return { family, table };
}

function tableInfo(table: TableState): TableInfo {
  const { ref, handle, flags, use, userdata, owner } = table;
  return { ...ref, handle, flags, use, userdata, owner };
}

function chainInfo(ref: TableRef, chain: ChainState): ChainInfo {
  const { name, handle, base, flags, use, userdata } = chain;
  return {
    ...refOf(ref),
    chain: name,
    handle,
    flags,
    use,
    base,
    userdata,
  };
}

function objectInfo(state: ObjectState): ObjectDump {
  const { name, objType, handle, references, userdata } = state;
  const data = dumpedObject(state);
  return { kind: "object", object: name, objType, handle, use: references, data, userdata };
}

function setDump(ref: TableRef, set: SetState): SetDump {
  const { size: _size, timeout: _timeout, gcInterval: _gc, policy, dataLen, fieldLens, ...info } = set.info;
  const { size, timeout, gcInterval, isVerdictMap } = set;
  return {
    ...refOf(ref),
    ...info,
    handle: set.handle,
    count: [...set.elements.values()].filter(({ catchall }) => !catchall).length,
    ...(dataLen !== undefined && !isVerdictMap && { dataLen }),
    size,
    timeout,
    gcInterval,
    ...(policy !== undefined && policy !== 0 && { policy }),
    ...(fieldLens !== undefined && fieldLens.length > 1 && { fieldLens }),
  };
}

/** All elements that have not expired; elements of interval sets in the kernel's order, from the highest down. */
function pack(set: SetState, now: number): ElementBatch {
  const all =
    set.sorted === undefined
      ? [...set.elements.values()]
      : [...set.elements.values()].filter((e) => e.catchall).concat(set.sorted.toReversed());
  const elements = all.filter((element) => !isExpired(element, now));
  const timed = set.has(SetFlag.timeout);
  const shape = {
    keyLen: set.info.keyLen,
    dataLen: set.isVerdictMap ? 4 : (set.info.dataLen ?? 0),
    ...(set.ranges && { keyEnd: true }),
    ...((set.has(SetFlag.interval) || elements.some(({ catchall }) => catchall)) && { flags: true }),
    ...(timed && { timeouts: true, expirations: true }),
    ...(set.info.exprs?.length === 1 && set.info.exprs[0].type === "counter" && { counters: true }),
  };
  const layout = batchLayout(shape);
  const bytes = Buffer.alloc(elements.length * layout.stride);
  const verdicts: Verdict[] = [];
  const interned = new Map<string, number>();
  elements.forEach((element, record) => {
    const at = record * layout.stride;
    bytes.write(element.key, at, "latin1");
    if (layout.keyEnd >= 0) bytes.write(element.keyEnd, at + layout.keyEnd, "latin1");
    if (element.verdict !== undefined)
      bytes.writeUInt32LE(intern(element.verdict, verdicts, interned), at + layout.data);
    else if (layout.data >= 0) bytes.write(element.data, at + layout.data, "latin1");
    if (layout.flags >= 0) bytes.writeUInt32LE(flagsOf(element), at + layout.flags);
    if (layout.counter >= 0) {
      bytes.writeBigUInt64LE(element.count?.packets ?? 0n, at + layout.counter);
      bytes.writeBigUInt64LE(element.count?.bytes ?? 0n, at + layout.counter + 8);
    }
    if (!timed) return;
    bytes.writeBigUInt64LE(element.timeout ?? 0n, at + layout.timeout);
    const left = element.expiresAt === Infinity ? 0 : Math.max(1, Math.round(element.expiresAt - now));
    bytes.writeBigUInt64LE(BigInt(left), at + layout.expiration);
  });
  const extras = elements.flatMap(({ userdata, target }, record) => {
    const object = target instanceof ObjectState ? { object: target.name } : {};
    return userdata === undefined && !("object" in object) ? [] : { record, ...object, ...(userdata && { userdata }) };
  });
  return {
    count: elements.length,
    ...shape,
    ...(set.isVerdictMap && { verdicts }),
    ...(extras.length > 0 && { extras }),
    bytes,
  };
}

function flagsOf({ end, catchall }: ElementState): number {
  return (end ? ElementFlag.intervalEnd : 0) | (catchall ? ElementFlag.catchall : 0);
}

function intern(verdict: Verdict, verdicts: Verdict[], interned: Map<string, number>): number {
  const name = "chain" in verdict ? `${verdict.verdict} ${verdict.chain}` : verdict.verdict;
  const known = interned.get(name);
  if (known !== undefined) return known;
  interned.set(name, verdicts.length);
  return verdicts.push(verdict) - 1;
}
