/** A proxier with connection tracking that the test itself runs in the lab's node namespace, one write at a time. */
import { pino } from "pino";

import { loadConfig } from "../../../src/config/load.ts";
import { NetlinkConntrack } from "../../../src/nft/conntrack/netlink-conntrack.ts";
import type { ReconcileReport } from "../../../src/conntrack/reconcile/reconciler.ts";
import { ConntrackService, type ConntrackServiceOptions } from "../../../src/conntrack/conntrack-service.ts";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackFilter,
} from "../../../src/nft/conntrack/conntrack-table.ts";
import { plainEntry } from "../../../src/nft/conntrack/decode.ts";
import { NftKernel } from "../../../src/nft/kernel/nft-kernel.ts";
import { formatAddress } from "../../../src/base/ip.ts";
import { loggerOptions } from "../../../src/base/logger.ts";
import { Proxier } from "../../../src/proxier/proxier.ts";
import type { KubeKind } from "../../../src/objects/object-sink.ts";
import { type ApiObject, decoded } from "../../support/decoded.ts";
import type { Cluster } from "./cluster.ts";
import { configuration, type Manifest, NODE, nodeObject, serviceCIDRObject } from "./objects.ts";
import { SILENT } from "../../support/log.ts";

const FAMILIES = ["ip", "ip6"] as const;
const { seenReply } = CONNTRACK_STATUS;

/** Options beyond those that every service has. */
export type TrackedOptions = Pick<ConntrackServiceOptions, "observers" | "gcInterval" | "timing">;

export class Tracked {
  readonly table: NetlinkConntrack;
  readonly conntrack: ConntrackService;
  readonly reports: ReconcileReport[] = [];
  readonly #cluster: Cluster;
  readonly #kernel: NftKernel;
  readonly #proxier: Proxier;
  #names = new Map<string, KubeKind>();

  private constructor(
    cluster: Cluster,
    kernel: NftKernel,
    table: NetlinkConntrack,
    proxier: Proxier,
    { observers = [], ...more }: TrackedOptions,
  ) {
    this.#cluster = cluster;
    this.#kernel = kernel;
    this.table = table;
    this.#proxier = proxier;
    this.conntrack = new ConntrackService({
      table,
      model: proxier.model,
      families: FAMILIES,
      localAddresses: async () =>
        (await kernel.interfaces.addresses()).map(({ family, address }) => ({
          family,
          address: formatAddress(address),
        })),
      log: SILENT,
      observers: [{ reconciled: (report) => this.reports.push(report) }, ...observers],
      ...more,
    });
    proxier.observe(this.conntrack);
  }

  static async start(cluster: Cluster, settings: Manifest = {}, more: TrackedOptions = {}): Promise<Tracked> {
    const args = await cluster.write([], configuration(settings));
    const { config } = await loadConfig(args[args.indexOf("--config") + 1]);
    const netns = `/run/netns/${cluster.lab.node.name}`;
    const kernel = await NftKernel.open({ netns });
    const table = await NetlinkConntrack.open({ netns });
    const log = pino(loggerOptions("warn"), pino.destination({ dest: 2, sync: true }));
    const clock = { now: () => performance.now() };
    const { interfaces } = kernel;
    const options = { config, nodeName: NODE, families: FAMILIES, kernel, interfaces, log, clock };
    const tracked = new Tracked(cluster, kernel, table, new Proxier({ ...options, trackRemovals: true }), more);
    tracked.#put([nodeObject(), serviceCIDRObject()]);
    tracked.#proxier.synced();
    return tracked;
  }

  /**
   * Applies exactly these objects, besides the node. Resolves when the kernel has the rules, with the time: ms,
   * CLOCK_MONOTONIC.
   */
  async apply(objects: readonly Manifest[]): Promise<number> {
    this.#put([nodeObject(), serviceCIDRObject(), ...objects]);
    const { ok } = await this.#proxier.sync();
    if (!ok) throw new Error("the kernel refused the rules");
    return Number(process.hrtime.bigint()) / 1e6;
  }

  async entries(filter: ConntrackFilter = {}): Promise<readonly ConntrackEntry[]> {
    const found: ConntrackEntry[] = [];
    await this.table.dump(filter, (entries) => void found.push(...entries.map(plainEntry)));
    return found;
  }

  /** Entries of clients' ports from `from` to below `to` in which this pod has answered. */
  async answered(pod: string, from: number, to: number): Promise<readonly ConntrackEntry[]> {
    const addresses = Object.values<string>(this.#cluster.lab.pod(pod).address);
    const entries = await this.entries({ status: { value: seenReply, mask: seenReply } });
    return entries.filter(
      ({ original, reply }) =>
        original.sourcePort >= from && original.sourcePort < to && addresses.includes(reply.source),
    );
  }

  async stop(): Promise<void> {
    await this.conntrack.stop();
    await this.#proxier.stop();
    await this.table.close();
    await this.#kernel.close();
  }

  #put(objects: readonly Manifest[]): void {
    const names = new Map<string, KubeKind>();
    for (const object of objects) {
      const kind = object["kind"] as KubeKind;
      const { namespace, name } = object["metadata"] as { namespace?: string; name: string };
      names.set(`${kind} ${namespace === undefined ? name : `${namespace}/${name}`}`, kind);
      this.#proxier.upsert(decoded({ kind, object } as unknown as ApiObject, NODE));
    }
    for (const [key, kind] of this.#names) {
      if (!names.has(key)) this.#proxier.remove(kind, key.slice(kind.length + 1));
    }
    this.#names = names;
  }
}
