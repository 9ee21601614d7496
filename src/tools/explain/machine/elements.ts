/** The elements of one set, looked up as the kernel does. Pure. */
import { batchLayout, type Element, elementAt, elementsOf } from "../../../nft/kernel/element-batch.js";
import { CmpOp, SetFlag } from "../../../nft/kernel/constants.js";
import type { ElementBatch, SetDump } from "../../../nft/kernel/kernel.js";
import { all, type Bits, compares, equals, isKnown, isWithin, partOf, type Ternary } from "./bits.js";

/** The value of an element that a lookup found. */
export type Found = Pick<Element, "data" | "verdict">;

/** Result of a lookup with a key of which all bits or only some are known. */
interface Findings {
  /** Elements that may match. Undefined if there are too many to check. */
  readonly found: readonly Found[] | undefined;
  /** Whether it is possible that no element matches. */
  readonly none: boolean;
}

/** Larger sets are not searched for a partly unknown key. */
const MOST_LOOKED_THROUGH = 65_536;

/** The possibly many elements of a plain set stay in their original bytes. */
export class Elements {
  /** Whether keys are compared with ranges. */
  readonly #interval: boolean;
  /** Elements that are ranges by themselves, and those that begin or end one, by key. */
  readonly #ranges: readonly Element[];
  readonly #bounds: readonly Element[];
  readonly #catchall: Element | undefined;
  /** Padded length of each field of a key, bytes. */
  readonly #fields: readonly number[];

  constructor(
    set: SetDump,
    private readonly batch: ElementBatch,
  ) {
    this.#fields = (set.fieldLens ?? [set.keyLen]).map((length) => Math.ceil(length / 4) * 4);
    this.#interval = (set.flags & SetFlag.interval) !== 0;
    const elements = this.#interval || batchLayout(batch).flags >= 0 ? [...elementsOf(batch)] : [];
    this.#catchall = elements.find(({ catchall }) => catchall);
    const sorted = (this.#interval ? elements : [])
      .filter(({ catchall }) => !catchall)
      // If a range ends where the next begins, the beginning takes precedence.
      .toSorted((a, b) => Buffer.compare(a.key, b.key) || Number(b.end) - Number(a.end));
    this.#ranges = sorted.filter(({ keyEnd }) => keyEnd !== undefined);
    this.#bounds = sorted.filter(({ keyEnd }) => keyEnd === undefined);
  }

  get count(): number {
    return this.batch.count;
  }

  find(key: Bits): Findings {
    if (this.count > MOST_LOOKED_THROUGH && !isKnown(key)) return { found: undefined, none: true };
    const found: Found[] = [];
    for (const [element, matches] of this.#interval ? this.#inRanges(key) : this.#equal(key)) {
      if (matches === true) return { found: [element], none: false };
      if (matches === undefined) found.push(element);
    }
    return this.#catchall === undefined ? { found, none: true } : { found: [...found, this.#catchall], none: false };
  }

  *#equal(key: Bits): Generator<[Element, Ternary]> {
    if (isKnown(key)) {
      const { bytes } = this.batch;
      const { stride } = batchLayout(this.batch);
      const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      for (let at = buffer.indexOf(key.bytes); at >= 0; at = buffer.indexOf(key.bytes, at + 1)) {
        const element = at % stride === 0 ? elementAt(this.batch, at / stride) : undefined;
        if (element?.catchall === false) yield [element, true];
      }
      return;
    }
    for (const element of elementsOf(this.batch)) if (!element.catchall) yield [element, equals(key, element.key)];
  }

  *#inRanges(key: Bits): Generator<[Element, Ternary]> {
    for (const range of this.#ranges) yield [range, this.#isWithin(key, range.key, range.keyEnd ?? range.key)];
    for (const [i, bound] of this.#bounds.entries()) {
      if (compares(key, CmpOp.lt, bound.key) === true) return;
      if (bound.end) continue;
      const next = this.#bounds[i + 1];
      const isBefore = next === undefined || compares(key, CmpOp.lt, next.key);
      yield [bound, all([compares(key, CmpOp.gte, bound.key), isBefore])];
    }
  }

  /** Compares field by field. */
  #isWithin(key: Bits, from: Uint8Array, to: Uint8Array): Ternary {
    let at = 0;
    const fields = this.#fields.map((length) => {
      const [begin, end] = [at, (at += length)];
      return isWithin(partOf(key, begin, length), from.subarray(begin, end), to.subarray(begin, end));
    });
    return all(fields);
  }
}

/**
 * Whether a found element may still not match, because it limits, or counts until a quota is used up. If rules may
 * add to a set, each element may have its own expression.
 */
export function isGuarded({ flags, exprs = [] }: SetDump): boolean {
  if (exprs.length === 0) return (flags & SetFlag.eval) !== 0;
  return exprs.some(({ type }) => type !== "counter" && type !== "last");
}
