/**
 * Finds and reports kube-proxy's leftovers outside nf_tables, in the tables of the older iptables and in IPVS. Removes
 * nothing.
 */
import { counted } from "../../base/counted.js";
import { readText } from "../../node/proc-file.js";
import { findLegacy, type ForeignLeftover, type LegacyReader } from "./find-legacy.js";
import { IPVS_INTERFACE } from "./ipvs-names.js";

export interface ForeignOptions {
  /** Directory that contains /proc. Default "/". */
  readonly root?: string;
  /** Without it, every table that could have kube-proxy's chains is reported. */
  readonly legacy?: LegacyReader;
}

/** Never throws. Treats unreadable files as absent. */
export async function findForeignLeftovers(options: ForeignOptions = {}): Promise<ForeignLeftover[]> {
  const { root = "/" } = options;
  const found = [
    await findLegacy("ip", root, options.legacy),
    await findLegacy("ip6", root, options.legacy),
    await findIpvs(root),
  ];
  return found.flatMap((leftover) => leftover ?? []);
}

/** Returns undefined if nothing of kube-proxy is there. Never throws. */
async function findIpvs(root: string): Promise<ForeignLeftover | undefined> {
  const seen: string[] = [];
  const interfaces = await readText(root, "proc/net/dev");
  const hasInterface = interfaces.split("\n").some((line) => line.trim().startsWith(`${IPVS_INTERFACE}:`));
  if (hasInterface) seen.push(`interface ${IPVS_INTERFACE}`);
  // "TCP  0A600001:01BB rr"; IPv6 addresses are in brackets.
  const services = (await readText(root, "proc/net/ip_vs")).match(/^(?:TCP|UDP|SCTP) +\S+ /gm)?.length ?? 0;
  if (services > 0) seen.push(counted(services, "virtual service"));
  if (seen.length === 0) return undefined;
  const commands = [
    ...(services > 0 ? ["ipvsadm --clear"] : []),
    ...(hasInterface ? [`ip link delete ${IPVS_INTERFACE}`] : []),
  ];
  return { kind: "ipvs", seen: seen.join(", "), command: commands.join(" && ") };
}
