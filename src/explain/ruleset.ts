/** What the kernel holds, read as it is needed: every table's base chains, rules and sets. */
import { batchLayout } from "../kernel/element-batch.js";
import { ElementFlag, SetFlag } from "../kernel/constants.js";
import type { BaseChain, ElementBatch, Kernel, RuleInfo, SetDump, TableRef, Verdict } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";

export interface HookedChain {
  readonly ref: TableRef;
  readonly chain: string;
  readonly base: BaseChain;
}

/** What a look-up found. */
export interface Found {
  /** Of a data map. */
  readonly data?: Uint8Array;
  /** Of a verdict map. */
  readonly verdict?: Verdict;
}

interface TableContents {
  readonly rules: ReadonlyMap<string, readonly RuleInfo[]>;
  readonly sets: ReadonlyMap<string, SetDump>;
}

export interface Element extends Found {
  readonly key: Uint8Array;
  readonly keyEnd?: Uint8Array;
  readonly end: boolean;
  readonly catchall: boolean;
}

/** The ruleset that packets of one family meet. Each part is read once, and is of the moment of its reading. */
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

  /** Base chains at a hook, in the order in which packets meet them. */
  async at(hook: number): Promise<readonly HookedChain[]> {
    this.#hooked ??= this.#readHooked();
    const all = await this.#hooked;
    return all.filter(({ base }) => base.hook === hook).toSorted((a, b) => a.base.priority - b.base.priority);
  }

  async rules(ref: TableRef, chain: string): Promise<readonly RuleInfo[]> {
    return (await this.#table(ref)).rules.get(chain) ?? [];
  }

  /** Undefined: no such set. */
  async set(ref: TableRef, name: string): Promise<SetDump | undefined> {
    return (await this.#table(ref)).sets.get(name);
  }

  /** Undefined: there is no element of that key. */
  async lookUp(ref: TableRef, set: SetDump, key: Uint8Array): Promise<Found | undefined> {
    const id = `${ref.family} ${ref.table} ${set.set}`;
    let elements = this.#elements.get(id);
    if (elements === undefined) {
      elements = this.#kernel.elements(ref, set).then((batch) => new Elements(set, batch));
      this.#elements.set(id, elements);
    }
    return (await elements).find(key);
  }

  async #readHooked(): Promise<readonly HookedChain[]> {
    const tables = [...(await this.#kernel.tables(this.#family)), ...(await this.#kernel.tables("inet"))];
    const found: HookedChain[] = [];
    for (const { family, table, flags } of tables) {
      // NFT_TABLE_F_DORMANT: its chains are not registered.
      if ((flags & 1) !== 0) continue;
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

/** Elements of one set, to look up as the kernel does. Those of a plain map, which may be many, stay the bytes that they came as. */
class Elements {
  readonly #batch: ElementBatch;
  readonly #isPlain: boolean;
  readonly #byKey = new Map<string, Element>();
  /** By key, where elements are ranges. */
  readonly #ranges: Element[] = [];
  readonly #interval: boolean;
  #catchall: Element | undefined;

  constructor(set: SetDump, batch: ElementBatch) {
    this.#batch = batch;
    this.#interval = (set.flags & SetFlag.interval) !== 0;
    this.#isPlain = !this.#interval && batchLayout(batch).flags < 0;
    if (this.#isPlain) return;
    for (const element of elementsOf(batch)) {
      if (element.catchall) this.#catchall = element;
      else if (this.#interval) this.#ranges.push(element);
      else this.#byKey.set(hex(element.key), element);
    }
    // Where a range ends and the next begins, the beginning counts.
    this.#ranges.sort((a, b) => Buffer.compare(a.key, b.key) || Number(b.end) - Number(a.end));
  }

  find(key: Uint8Array): Found | undefined {
    if (this.#isPlain) return this.#inBytes(key);
    const found = this.#interval ? this.#inRanges(key) : this.#byKey.get(hex(key));
    return found ?? this.#catchall;
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
      ({ key: from, keyEnd }) => keyEnd !== undefined && fieldsWithin(key, from, keyEnd),
    );
    if (concatenated !== undefined) return concatenated;
    const last = this.#ranges.findLast((each) => each.keyEnd === undefined && Buffer.compare(each.key, key) <= 0);
    return last === undefined || last.end ? undefined : last;
  }
}

/** Field by field; fields of a concatenation are padded to 4 bytes, so that words can be compared (their padding is 0). */
function fieldsWithin(key: Uint8Array, from: Uint8Array, to: Uint8Array): boolean {
  for (let at = 0; at < key.length; at += 4) {
    const word = (bytes: Uint8Array): Uint8Array => bytes.subarray(at, at + 4);
    if (Buffer.compare(word(key), word(from)) < 0 || Buffer.compare(word(key), word(to)) > 0) return false;
  }
  return true;
}

/** Elements of a batch, one after the other. */
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
