/** Tries the rules that this node would get, in a transaction that the kernel checks and rolls back. */
import { counted } from "../../base/counted.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import type { EndpointBalance } from "../../model/balance/endpoint-balance.js";
import { EndpointList, NO_ENDPOINTS } from "../../objects/endpoint-list.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import type { Kernel, Op } from "../../nft/kernel/kernel.js";
import { SetName } from "../../ruleset/names.js";
import { FamilyRuleset, type RulesetOptions } from "../../ruleset/family-ruleset.js";
import { type ApplyResult, probeRuleFeatures, Table, TableError } from "../../nft/engine-exports.js";
import { note, ok, problem, type Said } from "./finding.js";
import type { ElementCount } from "./footprint.js";

/**
 * A table name that no program uses, because a batch that adds to an existing table would conflict with its content.
 */
const TRIAL_TABLE = "nft-proxier-preflight";

/**
 * Maximum number of elements to send. A listener to nf_tables anywhere on the host costs the kernel a page or two per
 * element of a transaction.
 */
const MOST_ELEMENTS = 16_384;

/** The result for one family. */
export interface TrialResult {
  readonly family: IpFamily;
  /** Undefined if not probed, or if the kernel does not say. */
  readonly rejectInPrerouting: boolean | undefined;
  readonly elementCounters: boolean | undefined;
  /** The rules that every node has, then those for services. */
  readonly skeleton: Attempt;
  readonly services: Attempt;
}

type Attempt =
  | { readonly outcome: "accepted"; readonly objects: ApplyResult["operations"] }
  /** The rejected objects in the kernel's order, and the kernel's message. */
  | { readonly outcome: "refused"; readonly reason: string; readonly faults: readonly string[] }
  | { readonly outcome: "too large"; readonly elements: number }
  | { readonly outcome: "not made" };

interface TrialOptions {
  readonly kernel: Kernel;
  readonly family: IpFamily;
  readonly options: RulesetOptions;
  /** By service. If empty, made-up services that use every kind of rule are tried. */
  readonly services: ReadonlyMap<string, readonly ServicePortView[]>;
}

/**
 * Leaves no trace: the ruleset's generation is the same before and after. Rejects with KernelError if the kernel cannot
 * be asked.
 */
export async function tryRules({ kernel, family, options, services }: TrialOptions): Promise<TrialResult> {
  const { rejectPrerouting: rejectInPrerouting, elementCounters } = await probeRuleFeatures(kernel, family);
  const full: RulesetOptions = {
    ...options,
    rejectInPrerouting: rejectInPrerouting !== false,
    counters: elementCounters === true ? "service" : "off",
  };
  const skeleton = await attempt(kernel, family, full, new Map());
  const given = services.size > 0 ? services : new Map([["made-up/service", madeUp(family)]]);
  const withServices: Attempt =
    skeleton.outcome === "accepted" ? await attempt(kernel, family, full, given) : { outcome: "not made" };
  return { family, rejectInPrerouting, elementCounters, skeleton, services: withServices };
}

/** Counts the map elements of the rules for these services, without asking a kernel. */
export async function countElements({
  family,
  options,
  services,
}: Omit<TrialOptions, "kernel">): Promise<ElementCount> {
  let count: ElementCount | undefined;
  const kernel = emptyKernel((ops) => {
    count = elementsOf(ops);
    return Promise.reject(new RangeError("counted"));
  });
  const table = new Table(kernel, { family, name: TRIAL_TABLE, pieceElements: Number.MAX_SAFE_INTEGER });
  const full = { ...options, rejectInPrerouting: true, counters: "service" } as const;
  const ruleset = new FamilyRuleset(table, family, full, 0);
  try {
    for (const [service, views] of services) ruleset.update(service, views);
    await table.apply();
  } catch (error) {
    if (count === undefined) throw error;
  } finally {
    table.close();
  }
  return count ?? { elements: 0, counting: 0 };
}

function elementsOf(ops: readonly Op[]): ElementCount {
  let elements = 0;
  let counting = 0;
  for (const op of ops) {
    if (op.kind !== "elements" || !("elements" in op)) continue;
    elements += op.elements.count;
    if (op.set === SetName.services || op.set === SetName.nodePorts) counting += op.elements.count;
  }
  return { elements, counting };
}

async function attempt(
  kernel: Kernel,
  family: IpFamily,
  options: RulesetOptions,
  services: TrialOptions["services"],
): Promise<Attempt> {
  const { elements } = await countElements({ family, options, services });
  if (elements > MOST_ELEMENTS) return { outcome: "too large", elements };
  // No table exists or is ever created in it.
  const commit: Kernel["commit"] = (ops) => kernel.commit(ops, { dryRun: true });
  const trial = { ...emptyKernel(commit), portId: kernel.portId, generation: () => kernel.generation() };
  const table = new Table(trial, { family, name: TRIAL_TABLE, pieceElements: Number.MAX_SAFE_INTEGER });
  const ruleset = new FamilyRuleset(table, family, options, 0);
  try {
    for (const [service, views] of services) ruleset.update(service, views);
    const { operations } = await table.apply();
    return { outcome: "accepted", objects: operations };
  } catch (error) {
    if (!(error instanceof TableError) || error.code !== "refused") throw error;
    const faults = ruleset
      .attribute(error.faulty)
      .map(({ service, what }) => (service === undefined ? what : `${what} (${service})`));
    return { outcome: "refused", reason: error.message, faults };
  } finally {
    table.close();
  }
}

/** An empty kernel that reports no events. */
function emptyKernel(commit: Kernel["commit"]): Kernel {
  const none = <T>(): Promise<T[]> => Promise.resolve([]);
  const notHere = (): Promise<never> => Promise.reject(new Error("a trial kernel has no elements and no events"));
  return {
    portId: 0,
    committed: { beside: () => 0 },
    commit,
    generation: () => Promise.resolve({ id: 0 }),
    tables: none,
    chains: none,
    rules: none,
    sets: none,
    objects: none,
    object: () => Promise.resolve(undefined),
    elements: notHere,
    monitor: notHere,
    close: () => Promise.resolve(),
  };
}

/** Documentation addresses (RFC 5737, RFC 3849). Nothing is sent to them, and the rules never become active. */
const ADDRESSES = {
  ip: ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "198.51.100.0/24"],
  ip6: ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8::5", "2001:db8:1::/48"],
} as const;

/**
 * Ports that use every kind of rule: node ports, both policies, source ranges, affinity, no endpoint or a lost one,
 * slots.
 */
function madeUp(family: IpFamily): ServicePortView[] {
  const [vip, external, balancer, one, two, range] = ADDRESSES[family];
  const endpoints = EndpointList.of(family, [
    { address: one, port: 8080, local: true },
    { address: two, port: 8080, local: false },
  ]);
  const balance: EndpointBalance = { by: "source-ip", slots: 256, weights: undefined };
  const port = (number: number, more: Partial<ServicePortView> = {}): ServicePortView => ({
    service: "made-up/service",
    portName: `p${number}`,
    protocol: "TCP",
    port: number,
    clusterIP: vip,
    externalIPs: [external],
    loadBalancerIPs: [balancer],
    nodePort: 30_000 + number,
    internalPolicyLocal: false,
    externalPolicyLocal: false,
    affinitySeconds: 0,
    clusterEndpoints: endpoints,
    localEndpoints: endpoints.pick([0]),
    hasAnyEndpoint: true,
    resetRemovedEndpoints: true,
    ...more,
  });
  return [
    port(1, { sourceRanges: [range] }),
    port(2, { externalPolicyLocal: true, protocol: "UDP", resetRemovedEndpoints: false }),
    port(3, { affinitySeconds: 10_800 }),
    port(4, { clusterEndpoints: NO_ENDPOINTS, localEndpoints: NO_ENDPOINTS, hasAnyEndpoint: false }),
    port(5, { protocol: "SCTP", resetRemovedEndpoints: false }),
    port(6, { balance }),
  ];
}

/**
 * Maximum number of rejected objects to report, and of characters from the kernel's message, which begins with the
 * first of them.
 */
const MOST_FAULTS = 3;
const MOST_REASON = 240;

/** @param real whether the services were the cluster's. */
export function checkTrial(result: TrialResult, real: boolean): Said[] {
  const { family, skeleton, services, rejectInPrerouting, elementCounters } = result;
  const name = FAMILY_NAMES[family];
  const lacks: Said[] = [];
  if (rejectInPrerouting === false) {
    lacks.push(
      note(
        `${name}: the kernel cannot reject in prerouting (Linux 5.9 can), so packets refused by source ranges or limits are dropped`,
        "use Linux 5.9 or later",
      ),
    );
  }
  if (elementCounters !== true && skeleton.outcome === "accepted") {
    lacks.push(
      note(
        `${name}: the kernel cannot count per map element (Linux 5.7 can), so connections of services are not counted`,
        "use Linux 5.7 or later",
      ),
    );
  }
  return [...rulesSaid(name, skeleton, services, real), ...lacks];
}

function rulesSaid(name: string, skeleton: Attempt, services: Attempt, real: boolean): Said[] {
  if (skeleton.outcome === "refused") {
    return [
      problem(
        `${name}: the kernel refuses the rules: ${faultsText(skeleton)}`,
        "use another kernel; test/kernels/README.md of the sources lists tested ones",
      ),
    ];
  }
  switch (services.outcome) {
    case "accepted": {
      const { chain, rule, set, element } = services.objects;
      const counts = [
        counted(set.add, "set"),
        counted(element.add, "element"),
        counted(chain.add, "chain"),
        counted(rule.add, "rule"),
      ].join(", ");
      const whose = real ? "with the cluster's services" : "with a service of each kind";
      return [ok(`${name}: the kernel accepts the rules ${whose} (${counts}; checked and rolled back)`)];
    }
    case "refused":
      return [
        problem(
          `${name}: the kernel accepts the rules, but refuses objects that services need: ${faultsText(services)}`,
          real
            ? "correct these services or use another kernel; otherwise they are quarantined, and only the others are served"
            : "use another kernel; otherwise services of that kind are quarantined, and only the others are served",
        ),
      ];
    case "too large":
      return [
        ok(
          `${name}: the kernel accepts the rules (checked and rolled back, without the ${counted(services.elements, "element")} of all services)`,
        ),
      ];
    case "not made":
      return [];
  }
}

function faultsText({ reason, faults }: Extract<Attempt, { outcome: "refused" }>): string {
  if (faults.length === 0) return reason;
  const more = faults.length - MOST_FAULTS;
  const words = reason.length > MOST_REASON ? `${reason.slice(0, MOST_REASON)}…` : reason;
  return `${faults.slice(0, MOST_FAULTS).join("; ")}${more > 0 ? `; and ${more} more` : ""} (${words})`;
}
