/** The kernel's ruleset, read on demand: every table's base chains, rules and sets. */
import { batchLayout } from "../../netlink/element-batch.js";
import { CmpOp, ElementFlag, Hook, Priority, SetFlag, TableFlag } from "../../netlink/constants.js";
import type { BaseChain, ElementBatch, Kernel, RuleInfo, SetDump, TableRef, Verdict } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { type Bits, compares, equals, exactly, isKnown, isWithin, partOf, type Ternary } from "./bits.js";

export interface HookedChain {
  readonly ref: TableRef;
  readonly chain: string;
  readonly base: BaseChain;
}

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
   * Returns the base chains at a hook in the order in which packets pass them. Chains of the same priority run in the
   * reverse order of their registration, which the kernel does not report, so they form one group.
   */
  async at(hook: number): Promise<readonly (readonly HookedChain[])[]> {
    this.#hooked ??= this.#readHooked();
    const groups = new Map<string, HookedChain[]>();
    const all = (await this.#hooked).filter(({ base }) => base.hook === hook);
    for (const chain of all.toSorted((a, b) => placeOf(a) - placeOf(b) || a.base.priority - b.base.priority)) {
      const key = `${chain.base.type === "nat"} ${placeOf(chain)} ${chain.base.priority}`;
      const group = groups.get(key);
      if (group === undefined) groups.set(key, [chain]);
      else group.push(chain);
    }
    return [...groups.values()];
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
    const tables = [...(await this.#kernel.tables(this.#family)), ...(await this.#kernel.tables("inet"))];
    const found: HookedChain[] = [];
    for (const { family, table, flags } of tables) {
      // Chains of a dormant table are not registered.
      if ((flags & TableFlag.dormant) !== 0) continue;
      const ref = { family, table };
      for (const { chain, base } of await this.#kernel.chains(ref)) {
        if (base !== undefined) found.push({ ref, chain, base });
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
 * Position of a chain among all chains at its hook. The priority of a NAT chain orders only NAT chains; all of them run
 * at the position of the kernel's NAT (nf_nat_register_fn).
 */
export function placeOf({ base: { type, hook, priority } }: Pick<HookedChain, "base">): number {
  if (type !== "nat") return priority;
  return hook === Hook.prerouting || hook === Hook.output ? Priority.dstnat : Priority.srcnat;
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
