/** The kernel's ruleset, read on demand: every table's base chains, rules and sets. */
import { batchLayout } from "../../netlink/element-batch.js";
import { CmpOp, ElementFlag, Hook, HOOK_NAMES, Priority, SetFlag, TableFlag } from "../../netlink/constants.js";
import type {
  BaseChain,
  ElementBatch,
  Family,
  Kernel,
  RuleInfo,
  SetDump,
  TableRef,
  Verdict,
} from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { type Bits, compares, equals, exactly, isKnown, isWithin, partOf, type Ternary } from "./bits.js";

/** Places at which packets meet chains: the hooks of IP, those of a device, and those of a bridge. */
export const Point = { ...Hook, ingress: 5, egress: 6 } as const;
const POINT_NAMES = [...HOOK_NAMES, "ingress", "egress"];
const BRIDGE = POINT_NAMES.length;

/** The point of a bridge's hook, whose numbers are those of IP's hooks. */
export function bridgePoint(hook: number): number {
  return BRIDGE + hook;
}

/** The kernel numbers the hooks of each family from 0, but inet has ingress after those of IP (NF_INET_INGRESS). */
function pointOf(family: Family, hook: number): number {
  if (family === "netdev") return Point.ingress + hook;
  return family === "bridge" ? bridgePoint(hook) : hook;
}

/** "forward". */
export function pointName(point: number): string {
  return POINT_NAMES[point < BRIDGE ? point : point - BRIDGE] ?? String(point);
}

export interface HookedChain {
  readonly ref: TableRef;
  readonly chain: string;
  readonly base: BaseChain;
  readonly point: number;
}

/** A step at a hook: a chain, or the kernel's connection tracker or NAT, which runs all chains of type nat. */
export type Unit =
  | { readonly kind: "chain"; readonly chain: HookedChain }
  | { readonly kind: "tracker" }
  /** Groups of one priority each. */
  | { readonly kind: "nat"; readonly groups: readonly (readonly Unit[])[] };

/** NF_IP_PRI_CONNTRACK */
const CONNTRACK = -200;

/** An element that a lookup found. */
export interface Found {
  /** From a data map. */
  readonly data?: Uint8Array;
  /** From a verdict map. */
  readonly verdict?: Verdict;
}

/** Result of a lookup with a partly unknown key. */
interface Findings {
  /** Elements that may match. Undefined if there are too many to check. */
  readonly found: readonly Found[] | undefined;
  /** Whether it is possible that no element matches. */
  readonly none: boolean;
}

interface TableContents {
  readonly rules: ReadonlyMap<string, readonly RuleInfo[]>;
  readonly sets: ReadonlyMap<string, SetDump>;
}

interface Element extends Found {
  readonly key: Uint8Array;
  readonly keyEnd?: Uint8Array;
  readonly end: boolean;
  readonly catchall: boolean;
}

/** The ruleset for packets of one family. Each part is read once and reflects the time of that read. */
export class Ruleset {
  readonly #kernel: Kernel;
  readonly #family: IpFamily;
  #hooked: Promise<readonly HookedChain[]> | undefined;
  readonly #tables = new Map<string, Promise<TableContents>>();
  readonly #elements = new Map<string, Promise<Elements>>();

  constructor(kernel: Kernel, family: IpFamily) {
    this.#kernel = kernel;
    this.#family = family;
  }

  /**
   * Returns the steps at a point in the order in which packets pass them. Steps of the same priority form one group,
   * because they run in the reverse order of their registration, which the kernel does not report. Chains of one table
   * have that order.
   */
  async at(point: number, met: (chain: HookedChain) => boolean): Promise<readonly (readonly Unit[])[]> {
    const here = (await this.#allHooked()).filter((chain) => chain.point === point && met(chain)).toReversed();
    const units = here.flatMap((chain): [number, Unit][] =>
      chain.base.type === "nat" ? [] : [[chain.base.priority, { kind: "chain", chain }]],
    );
    if (point === Hook.prerouting || point === Hook.output) units.push([CONNTRACK, { kind: "tracker" }]);
    const nat = NAT[point];
    if (nat !== undefined) {
      const chains = here.filter(({ base }) => base.type === "nat");
      const inside = chains.map((chain): [number, Unit] => [chain.base.priority, { kind: "chain", chain }]);
      units.push([nat, { kind: "nat", groups: groupsOf(inside) }]);
    }
    return groupsOf(units);
  }

  /** Names of the devices that have chains at a point. */
  async devicesAt(point: number): Promise<ReadonlySet<string>> {
    const here = (await this.#allHooked()).filter((chain) => chain.point === point);
    return new Set(here.flatMap(({ base }) => base.devices ?? []));
  }

  #allHooked(): Promise<readonly HookedChain[]> {
    this.#hooked ??= this.#readHooked();
    return this.#hooked;
  }

  async rules(ref: TableRef, chain: string): Promise<readonly RuleInfo[]> {
    return (await this.#table(ref)).rules.get(chain) ?? [];
  }

  /** Returns undefined if there is no such set. */
  async set(ref: TableRef, name: string): Promise<SetDump | undefined> {
    return (await this.#table(ref)).sets.get(name);
  }

  /**
   * Whether a found element may still not match, because it limits, or counts until a quota is used up. If rules may
   * add to a set, each element may have its own expression.
   */
  isGuarded({ flags, exprs = [] }: SetDump): boolean {
    if (exprs.length === 0) return (flags & SetFlag.eval) !== 0;
    return exprs.some(({ type }) => type !== "counter" && type !== "last");
  }

  /** Looks up a key of which all bits or only some are known. */
  async lookUp(ref: TableRef, set: SetDump, key: Bits): Promise<Findings> {
    return (await this.#elementsOf(ref, set)).find(key);
  }

  async sizeOf(ref: TableRef, set: SetDump): Promise<number> {
    return (await this.#elementsOf(ref, set)).count;
  }

  #elementsOf(ref: TableRef, set: SetDump): Promise<Elements> {
    const id = `${ref.family} ${ref.table} ${set.set}`;
    let elements = this.#elements.get(id);
    if (elements === undefined) {
      elements = this.#kernel.elements(ref, set).then((batch) => new Elements(set, batch));
      this.#elements.set(id, elements);
    }
    return elements;
  }

  async #readHooked(): Promise<readonly HookedChain[]> {
    const families: readonly Family[] = [this.#family, "inet", "netdev", "bridge"];
    const found: HookedChain[] = [];
    for (const { family, table, flags } of await this.#kernel.tables()) {
      if (!families.includes(family)) continue;
      // Chains of a dormant table are not registered.
      if ((flags & TableFlag.dormant) !== 0) continue;
      const ref = { family, table };
      for (const { chain, base } of await this.#kernel.chains(ref)) {
        if (base !== undefined) found.push({ ref, chain, base, point: pointOf(family, base.hook) });
      }
    }
    return found;
  }

  #table(ref: TableRef): Promise<TableContents> {
    const id = `${ref.family} ${ref.table}`;
    let contents = this.#tables.get(id);
    if (contents === undefined) {
      contents = this.#readTable(ref);
      this.#tables.set(id, contents);
    }
    return contents;
  }

  async #readTable(ref: TableRef): Promise<TableContents> {
    const rules = new Map<string, RuleInfo[]>();
    for (const rule of await this.#kernel.rules(ref)) {
      const list = rules.get(rule.chain);
      if (list === undefined) rules.set(rule.chain, [rule]);
      else list.push(rule);
    }
    const sets = await this.#kernel.sets(ref);
    return { rules, sets: new Map(sets.map((set) => [set.set, set])) };
  }
}

/**
 * Priority of the kernel's NAT at each hook that has it (nf_nat_register_fn). The priority of a NAT chain orders only
 * NAT chains.
 */
const NAT: Readonly<Partial<Record<number, number>>> = {
  [Hook.prerouting]: Priority.dstnat,
  [Hook.output]: Priority.dstnat,
  [Hook.input]: Priority.srcnat,
  [Hook.postrouting]: Priority.srcnat,
};

function groupsOf(units: readonly (readonly [priority: number, unit: Unit])[]): Unit[][] {
  const groups = Map.groupBy(
    units.toSorted(([a], [b]) => a - b),
    ([priority]) => priority,
  );
  return Array.from(groups.values(), (group) => group.map(([, unit]) => unit));
}

/** Larger sets are not searched for a partly unknown key. */
const MOST_LOOKED_THROUGH = 65_536;

/**
 * The elements of one set, looked up as the kernel does. The possibly many elements of a plain map stay in their
 * original bytes.
 */
class Elements {
  readonly #batch: ElementBatch;
  readonly #isPlain: boolean;
  readonly #byKey = new Map<string, Element>();
  /** Elements that are ranges, by key. */
  readonly #ranges: Element[] = [];
  readonly #interval: boolean;
  /** Padded length of each field of a key, bytes. */
  readonly #fields: readonly number[];
  #catchall: Element | undefined;

  constructor(set: SetDump, batch: ElementBatch) {
    this.#batch = batch;
    this.#fields = (set.fieldLens ?? [set.keyLen]).map((length) => Math.ceil(length / 4) * 4);
    this.#interval = (set.flags & SetFlag.interval) !== 0;
    this.#isPlain = !this.#interval && batchLayout(batch).flags < 0;
    if (this.#isPlain) return;
    for (const element of elementsOf(batch)) {
      if (element.catchall) this.#catchall = element;
      else if (this.#interval) this.#ranges.push(element);
      else this.#byKey.set(hex(element.key), element);
    }
    // If a range ends where the next begins, the beginning takes precedence.
    this.#ranges.sort((a, b) => Buffer.compare(a.key, b.key) || Number(b.end) - Number(a.end));
  }

  get count(): number {
    return this.#batch.count;
  }

  find(key: Bits): Findings {
    if (!isKnown(key)) return this.#among(key);
    const { bytes } = key;
    const found = this.#isPlain
      ? this.#inBytes(bytes)
      : this.#interval
        ? this.#inRanges(bytes)
        : this.#byKey.get(hex(bytes));
    const one = found ?? this.#catchall;
    return one === undefined ? { found: [], none: true } : { found: [one], none: false };
  }

  /** Returns every element that may have the key. */
  #among(key: Bits): Findings {
    if (this.#batch.count > MOST_LOOKED_THROUGH) return { found: undefined, none: true };
    const found: Found[] = [];
    const others = this.#catchall === undefined ? [] : [this.#catchall];
    const none = this.#catchall === undefined;
    if (!this.#interval) {
      for (const element of elementsOf(this.#batch)) {
        if (!element.catchall && equals(key, element.key) !== false) found.push(element);
      }
      return { found: [...found, ...others], none };
    }
    for (const range of this.#ranges.filter(({ keyEnd }) => keyEnd !== undefined)) {
      const within = this.#mayBeWithin(key, range.key, range.keyEnd!);
      if (within === true) return { found: [range], none: false };
      if (within === undefined) found.push(range);
    }
    const plain = this.#ranges.filter(({ keyEnd }) => keyEnd === undefined);
    for (const [i, range] of plain.entries()) {
      if (range.end) continue;
      const next = plain[i + 1];
      const begun = compares(key, CmpOp.gte, range.key);
      const ended = next === undefined ? false : compares(key, CmpOp.gte, next.key);
      if (begun === true && ended === false) return { found: [range], none: false };
      if (begun !== false && ended !== true) found.push(range);
    }
    return { found: [...found, ...others], none };
  }

  #inBytes(key: Uint8Array): Element | undefined {
    const { bytes } = this.#batch;
    const { stride } = batchLayout(this.#batch);
    const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = all.indexOf(key); at >= 0; at = all.indexOf(key, at + 1)) {
      if (at % stride === 0) return elementAt(this.#batch, at / stride);
    }
    return undefined;
  }

  #inRanges(key: Uint8Array): Element | undefined {
    const concatenated = this.#ranges.find(
      ({ key: from, keyEnd }) => keyEnd !== undefined && this.#mayBeWithin(exactly(key), from, keyEnd) === true,
    );
    if (concatenated !== undefined) return concatenated;
    const last = this.#ranges.findLast((each) => each.keyEnd === undefined && Buffer.compare(each.key, key) <= 0);
    return last === undefined || last.end ? undefined : last;
  }

  /** Compares field by field. */
  #mayBeWithin(key: Bits, from: Uint8Array, to: Uint8Array): Ternary {
    let all: Ternary = true;
    let at = 0;
    for (const length of this.#fields) {
      const end = at + length;
      const within = isWithin(partOf(key, at, length), from.subarray(at, end), to.subarray(at, end));
      if (within === false) return false;
      if (within === undefined) all = undefined;
      at = end;
    }
    return all;
  }
}

export function* elementsOf(batch: ElementBatch): Generator<Element> {
  for (let i = 0; i < batch.count; i++) yield elementAt(batch, i);
}

function elementAt(batch: ElementBatch, index: number): Element {
  const layout = batchLayout(batch);
  const { bytes, keyLen, dataLen, verdicts } = batch;
  const at = index * layout.stride;
  const u32 = (from: number): number => new Uint32Array(bytes.slice(from, from + 4).buffer)[0] ?? 0;
  const flags = layout.flags < 0 ? 0 : u32(at + layout.flags);
  const data = layout.data < 0 ? undefined : bytes.slice(at + layout.data, at + layout.data + dataLen);
  const verdict = data === undefined ? undefined : verdicts?.[u32(at + layout.data)];
  return {
    key: bytes.slice(at, at + keyLen),
    ...(layout.keyEnd >= 0 && { keyEnd: bytes.slice(at + layout.keyEnd, at + layout.keyEnd + keyLen) }),
    end: (flags & ElementFlag.intervalEnd) !== 0,
    catchall: (flags & ElementFlag.catchall) !== 0,
    ...(verdict !== undefined ? { verdict } : data !== undefined && { data }),
  };
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}
