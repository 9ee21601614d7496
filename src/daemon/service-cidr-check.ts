/** Reports ServiceCIDRs that overlap networks of this node: in the log when an overlap appears, and in each status. */
import { few } from "../observe/few-problems.js";
import type { NodeRecord } from "../objects/records.js";
import type { Logger } from "../base/logger.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { StatusProblem } from "../observe/status-report.js";
import type { IpFamily } from "../base/ip.js";
import { nodeFacts } from "../node/node-facts.js";
import { readRoutes } from "../node/routes.js";
import { findOverlaps, type Overlap, OVERLAP_EFFECT, OVERLAP_REMEDY } from "../node/service-cidr-overlaps.js";
import type { Proxier } from "../proxier/proxier.js";
import type { ProxierObserver } from "../proxier/observer.js";

/** Interval after which a write makes routes be read again, ms, because we receive no events for routes. */
const RECHECK_MS = 60_000;
/** Maximum number of overlaps to log. */
const MOST_NAMED = 10;

interface ServiceCIDRCheckOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly families: readonly IpFamily[];
  readonly proxier: {
    readonly model: Pick<Proxier["model"], "serviceCIDRs" | "clusterIPs">;
    localAddresses: Pick<Proxier["localAddresses"], "current">;
  };
  readonly log: Logger;
}

export class ServiceCIDRCheck implements ProxierObserver {
  #node: NodeRecord | undefined;
  /** The lists of the last check. The model creates new lists when they change. */
  #checked: readonly (readonly string[])[] = [];
  #checkedAt = -Infinity;
  #checking: Promise<void> | undefined;
  /** The overlaps that were last logged. */
  #said = "";

  constructor(private readonly options: ServiceCIDRCheckOptions) {}

  set node(node: NodeRecord) {
    this.#node = node;
    this.#checkedAt = -Infinity;
  }

  /** Called when the Node, its addresses or those of its interfaces have changed. */
  nodePortAddresses(): void {
    this.#checkedAt = -Infinity;
  }

  /** Called after a write. Checks only if something may have changed. */
  synced(): void {
    const lists = this.#serviceCIDRs();
    const same = lists.every((list, i) => list === this.#checked[i]);
    if (this.#checking !== undefined || (same && performance.now() - this.#checkedAt < RECHECK_MS)) return;
    this.#checked = lists;
    this.#checkedAt = performance.now();
    this.#checking = this.check().finally(() => {
      this.#checking = undefined;
    });
  }

  /** Logs the overlaps if they differ from those last logged. Never rejects. */
  async check(): Promise<void> {
    const { log } = this.options;
    try {
      const overlaps = (await this.#find()).map(({ what }) => what);
      const said = overlaps.join("\n");
      if (said === this.#said) return;
      this.#said = said;
      if (overlaps.length === 0) return log.info("ServiceCIDRs no longer overlap other networks");
      const fields = { overlaps: overlaps.slice(0, MOST_NAMED), total: overlaps.length, hint: OVERLAP_REMEDY };
      log.warn(fields, `a ServiceCIDR overlaps other networks: ${OVERLAP_EFFECT}`);
    } catch (error) {
      log.debug({ err: error }, "checking ServiceCIDRs for overlaps failed");
    }
  }

  /** Returns the current overlaps. Never rejects. */
  async problems(): Promise<readonly StatusProblem[]> {
    const overlaps = await this.#find().catch((): Overlap[] => []);
    return few(
      overlaps.map(({ what }) => ({ what: `${what}: ${OVERLAP_EFFECT}`, remedy: OVERLAP_REMEDY })),
      ["network overlaps a ServiceCIDR", "networks overlap a ServiceCIDR"],
      OVERLAP_REMEDY,
    );
  }

  #serviceCIDRs(): (readonly string[])[] {
    return this.options.families.map((family) => this.options.proxier.model.serviceCIDRs(family));
  }

  async #find(): Promise<Overlap[]> {
    const { config, nodeName, proxier } = this.options;
    const serviceCIDRs = this.#serviceCIDRs().flat();
    if (serviceCIDRs.length === 0) return [];
    const [local, routes] = await Promise.all([proxier.localAddresses.current(), readRoutes()]);
    return findOverlaps({
      ...{ serviceCIDRs, clusterCIDRs: config.clusterCIDRs, local, routes, nodeIPs: this.#node?.hostIPs ?? [] },
      podCIDRs: nodeFacts(config, nodeName, this.#node).podCIDRs,
      clusterIPs: proxier.model.clusterIPs(),
    });
  }
}
