/**
 * Finds leftovers of kube-proxy's IPVS mode in /proc. Used for checks that must change nothing.
 */
import { counted } from "../../base/counted.js";
import type { ForeignLeftover } from "./find-legacy.js";
import { IPVS_INTERFACE } from "./ipvs-names.js";
import { readText } from "../../node/proc-file.js";

/** Returns undefined if nothing of kube-proxy is there. Never throws. */
export async function findIpvs(root: string): Promise<ForeignLeftover | undefined> {
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
