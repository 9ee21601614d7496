/**
 * Changes of services that the kernel rejected together without naming one. Before Linux 6.0, a refusal names only the
 * message, and one message has elements of many services. The changes are retried a few at a time:
 *
 *     refused together ──► waiting ──► tried: 1, 2, 4, … at once ──► accepted
 *                             ▲                 │
 *                             ├──── several ────┤ refused: half as many are tried next
 *                             │                 └─ one alone ──► at fault, if the kernel has accepted another one then or before;
 *                             └──────────────────────────────────  otherwise memory may be short
 *
 * Services between which an address or node port moves form one group, and are tried together.
 */
import type { ServicePortView } from "../model/service-port-view.js";
import { elementsOf, type ServiceState } from "../ruleset/family-ruleset.js";
import type { IpFamily } from "../base/ip.js";
import type { AddressKey } from "../model/service-address.js";
import { type Change, claimsIn } from "./changed-claims.js";

/** Changes by service. */
export type Group = Map<string, Change>;

/** Maximum number of elements in one retry, which take the kernel 10 to 20 ms. */
const MOST_ELEMENTS = 4096;
/** If the kernel accepts none of the changes, up to this many groups are at fault. If there are more, none is. */
const MOST_TO_BLAME = 2;
/** Maximum number of groups to try in one write while the kernel accepts none. */
const MOST_REFUSALS = 16;

export class Suspects {
  /** In the order in which they are tried. */
  #waiting = new Set<Group>();
  readonly #byService = new Map<string, Group>();
  /** By address or node port. */
  readonly #byClaim = new Map<AddressKey, Group>();
  /** Number of groups to try together, unless some are doubted. */
  #size = 1;
  /** The kernel rejected this many of the next groups together, so at least one of them is at fault. */
  #doubted = 0;
  /** Whether the kernel has accepted a change. */
  #hasProof = false;
  /** Number of groups that it rejected alone before that. */
  #refusals = 0;

  constructor(private readonly family: IpFamily) {}

  get size(): number {
    return this.#byService.size;
  }

  get services(): Iterable<string> {
    return this.#byService.keys();
  }

  has(service: string): boolean {
    return this.#byService.has(service);
  }

  /** Whether the kernel has accepted a change since the first suspect. */
  get hasProof(): boolean {
    return this.#hasProof;
  }

  /**
   * Whether the kernel has accepted none of many. Another refusal would show nothing more, and the next write
   * continues.
   */
  get stuck(): boolean {
    return !this.#hasProof && this.#refusals >= MOST_REFUSALS;
  }

  /**
   * Adds changes that the kernel rejected together. They are tried first, because a new change must not wait for older
   * ones.
   */
  add(changes: Iterable<readonly [service: string, change: Change]>): void {
    if (this.size === 0) [this.#hasProof, this.#refusals] = [false, 0];
    this.#putFirst(changes, 0);
  }

  /**
   * Removes and returns the groups related to the service, or to an address or node port of these views or this state.
   */
  takeRelated(service: string, views: readonly ServicePortView[], state: ServiceState): Group[] {
    const desired = views.map((view) => ({ view }));
    const related = this.#relatedTo(claimsIn(this.family, desired, state));
    const own = this.#byService.get(service);
    if (own !== undefined) related.add(own);
    return [...related].filter((group) => this.#remove(group));
  }

  /** Removes and returns the groups to try next. There is at least one if any are left. */
  takeNext(): Group[] {
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

  /** Removes and returns all groups. */
  takeAll(): Group[] {
    return [...this.#waiting].filter((group) => this.#remove(group));
  }

  /**
   * The kernel has accepted a change that adds something. So memory is not short, and each group that it rejects alone
   * is at fault.
   */
  proved(): void {
    this.#hasProof = true;
  }

  /** The kernel has accepted the groups that `takeNext` returned. */
  accepted(groups: number): void {
    this.#doubted = Math.max(0, this.#doubted - groups);
    this.#size = 2 * groups;
  }

  /**
   * The kernel has rejected these changes, the groups that `takeNext` returned. Returns true if they are at fault;
   * otherwise they become suspects again.
   * @param isProved whether their services were found at fault before, while the kernel accepted others.
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
      const related = [...this.#relatedTo(claimsIn(this.family, change.present, change.former))];
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

  #relatedTo(claims: Iterable<AddressKey>): Set<Group> {
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
    for (const claim of claimsIn(this.family, change.present, change.former)) this.#byClaim.set(claim, group);
  }

  #remove(group: Group): true {
    this.#waiting.delete(group);
    for (const [service, { present, former }] of group) {
      this.#byService.delete(service);
      for (const claim of claimsIn(this.family, present, former)) this.#byClaim.delete(claim);
    }
    return true;
  }
}
