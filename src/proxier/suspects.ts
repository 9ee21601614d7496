/**
 * Changes of services that the kernel refused together without naming one: before Linux 6.0 a refusal names the message, and one message has
 * elements of many services. They are tried again, a few at a time:
 *
 *     refused together ──► waiting ──► tried: 1, 2, 4, … at once ──► taken
 *                             ▲                 │
 *                             ├──── several ────┤ refused: half as many are tried next
 *                             │                 └─ one alone ──► at fault, if the kernel has taken another one then or before;
 *                             └──────────────────────────────────  otherwise memory may be short
 *
 * Services between which an address or node port passes are one group, and tried together.
 */
import type { ServicePortView } from "../model/service-port-view.js";
import { elementsOf, type ServiceState } from "../ruleset/ruleset.js";
import { type Change, claimsIn } from "./changed-claims.js";

/** Changes by service. */
export type Group = Map<string, Change>;

/** Elements of one try: 10 to 20 ms of the kernel's time. */
const MOST_ELEMENTS = 4096;
/** If the kernel takes none of the changes, up to this many groups are at fault; of more, none is. */
const MOST_TO_BLAME = 2;
/** Groups that one write tries while the kernel takes none. */
const MOST_REFUSALS = 16;

export class Suspects {
  /** In the order in which they are tried. */
  #waiting = new Set<Group>();
  readonly #byService = new Map<string, Group>();
  /** By address or node port. */
  readonly #byClaim = new Map<string, Group>();
  /** Groups to try together, unless some are doubted. */
  #size = 1;
  /** At least one of this many that come next is at fault: the kernel refused them together. */
  #doubted = 0;
  /** The kernel has taken a change. */
  #hasProof = false;
  /** Groups that it has refused alone before that. */
  #refusals = 0;

  get size(): number {
    return this.#byService.size;
  }

  get services(): Iterable<string> {
    return this.#byService.keys();
  }

  has(service: string): boolean {
    return this.#byService.has(service);
  }

  /** The kernel has taken a change since there are suspects. */
  get hasProof(): boolean {
    return this.#hasProof;
  }

  /** The kernel has taken none of many: one more refusal tells nothing, and the next write goes on. */
  get stuck(): boolean {
    return !this.#hasProof && this.#refusals >= MOST_REFUSALS;
  }

  /** Adds changes that the kernel refused together. They come first: a new change does not wait for those before it. */
  add(changes: Iterable<readonly [service: string, change: Change]>): void {
    if (this.size === 0) [this.#hasProof, this.#refusals] = [false, 0];
    this.#putFirst(changes, 0);
  }

  /** Takes out the groups that have to do with the service, or with an address or node port of these views or this state. */
  takeRelated(service: string, views: readonly ServicePortView[], state: ServiceState): Group[] {
    const desired = views.map((view) => ({ view }));
    const related = this.#relatedTo(claimsIn(desired, state));
    const own = this.#byService.get(service);
    if (own !== undefined) related.add(own);
    return [...related].filter((group) => this.#remove(group));
  }

  /** Takes out the groups to try next: at least one if there are any. */
  next(): Group[] {
    const groups: Group[] = [];
    const most = this.#doubted > 0 ? Math.ceil(this.#doubted / 2) : this.#size;
    let elements = 0;
    for (const group of this.#waiting) {
      if (groups.length === most || elements >= MOST_ELEMENTS) break;
      for (const { present, former } of group.values()) elements += 1 + elementsOf(present) + elementsOf(former);
      groups.push(group);
    }
    return groups.filter((group) => this.#remove(group));
  }

  /** Takes out all groups. */
  takeAll(): Group[] {
    return [...this.#waiting].filter((group) => this.#remove(group));
  }

  /** The kernel has taken a change that adds something: memory is not short, and each group that it refuses alone is at fault. */
  proved(): void {
    this.#hasProof = true;
  }

  /** The kernel has taken the groups that `next` gave. */
  taken(groups: number): void {
    this.#doubted = Math.max(0, this.#doubted - groups);
    this.#size = 2 * groups;
  }

  /**
   * The kernel has refused these changes: the groups that `next` gave. Returns true if they are at fault; otherwise they are suspects again.
   * @param isProved their services were found at fault before, while the kernel took others.
   */
  refused(changes: ReadonlyMap<string, Change>, groups: number, isProved = false): boolean {
    if (groups > 1) {
      this.#putFirst(changes, groups);
      return false;
    }
    [this.#size, this.#doubted] = [1, 0];
    if (isProved || this.#hasProof || this.#waiting.size < MOST_TO_BLAME) return true;
    this.#refusals++;
    for (const group of this.#grouped(changes)) this.#waiting.add(group);
    return false;
  }

  #putFirst(changes: Iterable<readonly [service: string, change: Change]>, doubted: number): void {
    [this.#size, this.#doubted] = [1, doubted];
    this.#waiting = new Set([...this.#grouped(changes), ...this.#waiting]);
  }

  #grouped(changes: Iterable<readonly [service: string, change: Change]>): Set<Group> {
    const groups = new Set<Group>();
    for (const [service, change] of changes) {
      const related = [...this.#relatedTo(claimsIn(change.present, change.former))];
      const [group = new Map() as Group, ...others] = related.sort((one, other) => other.size - one.size);
      for (const other of others) {
        groups.delete(other);
        this.#remove(other);
        for (const member of other) this.#put(group, ...member);
      }
      this.#put(group, service, change);
      groups.add(group);
    }
    return groups;
  }

  #relatedTo(claims: Iterable<string>): Set<Group> {
    const related = new Set<Group>();
    for (const claim of claims) {
      const group = this.#byClaim.get(claim);
      if (group !== undefined) related.add(group);
    }
    return related;
  }

  #put(group: Group, service: string, change: Change): void {
    group.set(service, change);
    this.#byService.set(service, group);
    for (const claim of claimsIn(change.present, change.former)) this.#byClaim.set(claim, group);
  }

  #remove(group: Group): true {
    this.#waiting.delete(group);
    for (const [service, { present, former }] of group) {
      this.#byService.delete(service);
      for (const claim of claimsIn(present, former)) this.#byClaim.delete(claim);
    }
    return true;
  }
}
