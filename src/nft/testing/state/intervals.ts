import { elementId, isExpired, Refusal, type ElementState, type SetState } from "./state.js";

type Place = Pick<ElementState, "key" | "end">;

/**
 * The kernel's rbtree of interval ends, including what it remembers during one batch (nft_set_rbtree.c).
 *
 * An end belongs to the last start. Adding or deleting an existing end is rejected unless the start before it is the one that the batch has
 * just named. So ranges must be given start first, end second, one after another.
 *
 * The kernel forgets that start with the jiffy in which the batch began. So a batch within the same jiffy still meets the start of the one
 * before it (Linux 6.18.44). The fake forgets it with the batch.
 */
export class IntervalGuard {
  /** start_rbe_cookie: the last named existing start that still waits for its end. */
  private start: ElementState | undefined;
  /** Deleted by this batch; they stay in the tree until it ends. */
  private readonly dead = new Set<ElementState>();
  constructor(private readonly set: SetState) {}

  /**
   * __nft_rbtree_insert. Returns the existing element, "ignore" for the null interval that every set may have, or undefined if the new one
   * fits. The kernel's ENOTEMPTY, a partial overlap, becomes EEXIST outside.
   */
  insert(element: ElementState, now: number): ElementState | "ignore" | undefined {
    const { set } = this;
    const [below, above] = this.neighbours(element, now);
    if (isNull(element) || (!element.end && set.anonymous)) this.forget();
    const existing = set.elements.get(elementId(element));
    if (existing !== undefined && !isExpired(existing, now)) {
      if (!element.end) {
        this.start = existing;
        return existing;
      }
      if (isNull(element)) return "ignore";
      if (!this.closes(existing, now)) throw new Refusal("EEXIST");
      return existing;
    }
    if (below !== undefined && !below.end && !element.end && (!set.anonymous || this.above(below, now)?.end === true)) {
      throw new Refusal("EEXIST");
    }
    if (element.end && (below?.end === true || above?.end === true)) throw new Refusal("EEXIST");
    return undefined;
  }

  /** nft_rbtree_insert_same_interval */
  private closes(end: ElementState, now: number): boolean {
    const { start } = this;
    if (start === undefined) return true;
    this.forget();
    const live = this.live(now);
    return live[live.indexOf(end) - 1] === start;
  }

  /** nft_rbtree_deactivate: returns the element to delete, if permitted. */
  remove(wanted: Place & Pick<ElementState, "keyEnd" | "catchall">, now: number): ElementState | undefined {
    if (!wanted.end || isNull(wanted)) this.forget();
    const found = this.set.elements.get(elementId(wanted));
    if (found === undefined || isExpired(found, now)) return undefined;
    if (!found.end) {
      this.start = found;
    } else if (!this.endsDeleted(found)) {
      return undefined;
    }
    this.dead.add(found);
    return found;
  }

  /** nft_rbtree_deactivate_same_interval: whether the next lower element in the tree is the start that was deleted last. */
  private endsDeleted(end: ElementState): boolean {
    const { start } = this;
    if (start === undefined) return true;
    this.forget();
    const between = (element: Place): boolean => compare(start, element) < 0 && compare(element, end) < 0;
    if (!this.dead.has(start) || compare(start, end) >= 0) return false;
    const sorted = this.set.sorted ?? [];
    return !sorted.some(between) && ![...this.dead].some(between);
  }

  private forget(): void {
    this.start = undefined;
  }

  private live(now: number): ElementState[] {
    return (this.set.sorted ?? []).filter((element) => !isExpired(element, now));
  }

  /** rbe_le and rbe_ge: the next element at or below the key, an end first; and the next at or above it, a start first. */
  private neighbours({ key }: Place, now: number): [below: ElementState | undefined, above: ElementState | undefined] {
    const sorted = this.set.sorted ?? [];
    let above = this.set.position({ key, end: false });
    while (above < sorted.length && isExpired(sorted[above], now)) above++;
    let below = this.set.position({ key, end: true });
    if (below >= sorted.length || sorted[below].key !== key || !sorted[below].end) below--;
    while (below >= 0 && isExpired(sorted[below], now)) below--;
    return [sorted[below], sorted[above]];
  }

  private above(element: ElementState, now: number): ElementState | undefined {
    const live = this.live(now);
    return live[live.indexOf(element) + 1];
  }
}

function compare(a: Place, b: Place): number {
  if (a.key !== b.key) return a.key < b.key ? -1 : 1;
  return Number(b.end) - Number(a.end);
}

/** nft_rbtree_interval_null: the end of nothing at all zeros, with which nft opens a set. */
export function isNull({ key, end }: Place): boolean {
  return end && !/[^\0]/.test(key);
}
