/** A proxier on a fake kernel that refuses chosen services, with everything that the proxier reports. */
import type { V1Service } from "@kubernetes/client-node";
import { expect } from "vitest";

import { FakeKernel, type FakeKernelOptions } from "../../../fakes/fake-kernel.ts";
import type { ProxierObserver, SyncReport } from "../../../../src/proxier/observer.js";
import type { Proxier } from "../../../../src/proxier/proxier.js";
import { SetName } from "../../../../src/ruleset/names.js";
import { atLength } from "../../../lab/length.ts";
import { keptIn } from "../../../support/log.ts";
import { snapshot } from "../../../support/snapshot.ts";
import { makeProxier, putService } from "./proxier.js";
import { isOfService, refuse, type Refusals, type Telling } from "./refusing.js";

export const MANY = atLength({ short: 1000, usual: 5000 });
export const TABLE = { family: "ip", table: "kube-proxy" } as const;

/** All elements of named sets, in any order and with any set sizes. `dispatch` is skipped because it keeps unused elements for a while. */
export async function elementsOf(kernel: FakeKernel): Promise<unknown> {
  const [table] = (await snapshot(kernel)) as { sets: { set: string; elements: unknown[] }[] }[];
  const byText = (a: unknown, b: unknown): number => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
  return table.sets
    .filter(({ set }) => set !== SetName.dispatch)
    .map(({ set, elements }) => [set, elements.toSorted(byText)])
    .toSorted((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
}

export class QuarantineWorld {
  readonly kernel: FakeKernel;
  readonly refusals: Refusals;
  /** The proxier's clock, ms. */
  now = 1_000_000;
  readonly told: string[] = [];
  readonly reports: SyncReport[] = [];
  readonly logged: Record<string, unknown>[] = [];
  proxier: Proxier;

  constructor(telling: Telling = "element", options: FakeKernelOptions = {}) {
    this.kernel = new FakeKernel(options);
    this.refusals = refuse(this.kernel, telling);
    this.proxier = this.make();
  }

  /** Another proxier that reports to this world. */
  make(kernel = this.kernel): Proxier {
    const observer: ProxierObserver = {
      quarantined: ({ service, reason }) => void this.told.push(`quarantined ${service}: ${reason}`),
      released: ({ service }) => void this.told.push(`released ${service}`),
      synced: (report) => void this.reports.push(report),
    };
    return makeProxier(kernel, { log: keptIn(this.logged), clock: { now: () => this.now }, observers: [observer] });
  }

  put(index: number, pods: readonly number[], change: Partial<V1Service["spec"]> = {}, to = this.proxier): void {
    putService(to, index, pods, change);
  }

  /** From now on the kernel refuses these services, and no others. */
  bad(...indices: number[]): void {
    this.refusals.refuses = isOfService(new Set(indices));
  }

  allowAll(): void {
    this.refusals.refuses = () => false;
  }

  /** The table of a proxier with only these services, on its own kernel. */
  async tableOf(services: Readonly<Record<number, readonly number[]>>): Promise<unknown> {
    const fresh = new FakeKernel();
    const other = this.make(fresh);
    for (const [index, pods] of Object.entries(services)) this.put(Number(index), pods, {}, other);
    other.synced();
    expect((await other.sync()).ok).toBe(true);
    return elementsOf(fresh);
  }

  quarantineLog(): Record<string, unknown>[] {
    return this.logged.filter(({ level, msg }) => level === "error" && String(msg).includes("quarantined"));
  }
}
