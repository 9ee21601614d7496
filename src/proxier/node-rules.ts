/**
 * Tracks everything besides services that rules depend on: the Node, its addresses, the configuration, and the kernel's
 * features.
 */
import type { NodeRecord } from "../objects/records.js";
import { yieldToEventLoop } from "../base/time-slice.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import { nodeFacts, nodePortAddresses } from "../node/node-facts.js";
import type { LocalAddresses } from "../node/local-addresses.js";
import type { ServiceCounters } from "../ruleset/service-counters.js";
import type { FamilyProxier } from "./family-proxier.js";
import type { RuleFeatures } from "../nft/engine-exports.js";
import type { ProxierContext } from "./proxier-context.js";
import { rulesetOptions } from "./ruleset-options.js";

const NO_COUNTERS = "counters of map elements, for --service-counters (Linux 5.7)";
const NO_OWNERS = "tables that outlive their owner";

interface NodeRulesOptions extends ProxierContext {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly families: readonly FamilyProxier[];
  readonly localAddresses: Pick<LocalAddresses, "current">;
  /** Called with the node's zone before each family gets its options. */
  readonly onZone: (zone: string | undefined) => void;
  readonly ownTable: boolean;
  readonly serviceCounters: ServiceCounters;
}

export class NodeRules {
  readonly #warned = new Set<string>();
  #node: NodeRecord | undefined;
  #changed = true;
  /** Undefined if nothing must be counted, or if the kernel has not been asked yet. */
  #counts: boolean | undefined;

  constructor(private readonly options: NodeRulesOptions) {}

  /** The current Node. Undefined if there is none. */
  set node(node: NodeRecord | undefined) {
    this.#node = node;
    this.#changed = true;
  }

  addressesChanged(): void {
    this.#changed = true;
  }

  /** Starts the kernel probes that `refresh` needs. They take 25 ms per family, most of it an RCU grace period. */
  probeAhead(): void {
    for (const family of this.options.families) void family.features();
  }

  /** Gives each family its new options if something has changed. */
  async refresh(): Promise<void> {
    const { config, nodeName, families, localAddresses, onZone } = this.options;
    if (!this.#changed && families.every((family) => family.ready)) return;
    // Reset before the wait, so that changes during it cause another round.
    this.#changed = false;
    const local = await localAddresses.current();
    const facts = nodeFacts(config, nodeName, this.#node);
    onZone(facts.context.zone);
    for (const family of families) {
      // The first time, all rules are created, by code that has not run before.
      if (!family.ready) await yieldToEventLoop();
      const nodePorts = nodePortAddresses(config, facts, family.family, local);
      if (nodePorts.warning !== undefined) this.#warnOnce(nodePorts.warning);
      const features = await family.features();
      const rejectInPrerouting = features?.rejectPrerouting;
      this.#changed ||= rejectInPrerouting === undefined;
      family.setOptions({
        ...rulesetOptions(config, facts, family.family, nodePorts),
        counters: this.#counters(features),
        rejectInPrerouting,
      });
      const { addresses, localhost } = nodePorts;
      for (const observer of this.options.observers) {
        observer.nodePortAddresses?.(family.family, addresses, localhost?.nets ?? []);
      }
    }
  }

  /** If the kernel could not be asked yet, assume that it counts. */
  #counters(features: RuleFeatures | undefined): ServiceCounters {
    const { serviceCounters } = this.options;
    if (serviceCounters === "off") return "off";
    this.#counts = features === undefined || features.elementCounters === true;
    if (!this.#counts) this.#warnOnce(`this kernel has no ${NO_COUNTERS}, so connections are not counted`);
    return this.#counts ? serviceCounters : "off";
  }

  /** Warns if tables should be owned, but the kernel does not support that. */
  async checkOwnership(): Promise<void> {
    const { ownTable, families } = this.options;
    if (!ownTable) return;
    for (const { table } of families) {
      if (await table.owned()) continue;
      this.#warnOnce(
        `this kernel does not support ${NO_OWNERS} (Linux 6.9), so other processes can change the tables. Such changes are repaired`,
      );
    }
  }

  /** Returns the features that the rules would use and that this kernel lacks, according to the probes so far. */
  async missingFeatures(): Promise<readonly string[]> {
    const { ownTable, families } = this.options;
    const missing: string[] = [];
    for (const family of families) {
      if ((await family.features())?.rejectPrerouting === false)
        missing.push(`${family.family}: reject in prerouting (Linux 5.9)`);
    }
    if (ownTable && !(await families[0]?.table.owned())) missing.push(`${NO_OWNERS}, for --own-table (Linux 6.9)`);
    if (this.#counts === false) missing.push(NO_COUNTERS);
    return missing;
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    this.options.log.warn(message);
  }
}
