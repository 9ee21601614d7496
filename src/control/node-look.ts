/** What of this node keeps packets from services although the rules are in force. Looked at when a status is asked for. */
import { droppingChains, type DroppingChain, type SamplePacket } from "../explain/firewalls.js";
import { handoverLeft } from "../handover/handover.js";
import type { Kernel } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import { reasonOf } from "../base/unknown.js";
import { conntrackFill, type ConntrackFill, FORWARDING, isFull, readSysctl } from "../node/packet-settings.js";
import { TABLE_NAME } from "../ruleset/names.js";
import type { StatusProblem } from "./types.js";

const FAMILIES: Readonly<Record<IpFamily, string>> = { ip: "IPv4", ip6: "IPv6" };

export interface NodeLook {
  /** Absent: no connection tracker is loaded. */
  readonly conntrack?: ConntrackFill;
  readonly problems: readonly StatusProblem[];
}

export interface NodeLookOptions {
  readonly kernel: Kernel;
  /** For each family that has endpoints, a packet to one of its services. */
  readonly samples: readonly SamplePacket[];
}

/** Never rejects. */
export async function lookAtNode({ kernel, samples }: NodeLookOptions): Promise<NodeLook> {
  const [conntrack, forwarding, firewalls, handovers] = await Promise.all([
    conntrackFill(),
    Promise.all(samples.map(({ packet }) => forwardingProblem(packet.family))),
    firewallProblems(kernel, samples),
    handoverProblems(kernel),
  ]);
  const problems = [...forwarding.flat(), ...firewalls, ...handovers, ...conntrackProblem(conntrack)];
  return { ...(conntrack !== undefined && { conntrack }), problems };
}

async function forwardingProblem(family: IpFamily): Promise<StatusProblem[]> {
  const name = FORWARDING[family];
  if ((await readSysctl(name)) !== 0) return [];
  const what = `${name} is 0: this node passes no packet on, to an endpoint or from one`;
  return [{ what, remedy: `sysctl -w ${name}=1, and keep it in /etc/sysctl.d` }];
}

function conntrackProblem(fill: ConntrackFill | undefined): StatusProblem[] {
  if (fill === undefined || !isFull(fill)) return [];
  const { entries, max } = fill;
  return [
    {
      what: `the connection tracking table is full to ${Math.floor((100 * entries) / max)} % (${entries} of ${max}): new connections are dropped`,
      remedy:
        "raise net.netfilter.nf_conntrack_max (conntrack.maxPerCore or conntrack.min in the configuration); " +
        "`nft-proxier conntrack count` shows who fills it",
    },
  ];
}

/** Copies that `handover` left. Never rejects: a kernel that cannot be read is another problem. */
export async function handoverProblems(kernel: Kernel): Promise<StatusProblem[]> {
  const problems = Object.entries(FAMILIES).map(async ([family, name]): Promise<StatusProblem[]> => {
    const left = await handoverLeft(kernel, family as IpFamily).catch(() => undefined);
    if (left === undefined) return [];
    const remedy = "`nft-proxier handover --remove`; the next start removes it, too";
    if (left === 0)
      return [{ what: `an expired handover copy of the ${name} rules is there: no packet is served by it`, remedy }];
    const seconds = Math.ceil(left / 1000);
    return [
      { what: `a handover copy of the ${name} rules serves, for ${seconds}s more, what no other rules do`, remedy },
    ];
  });
  return (await Promise.all(problems)).flat();
}

async function firewallProblems(kernel: Kernel, samples: readonly SamplePacket[]): Promise<StatusProblem[]> {
  try {
    const found = await Promise.all(samples.map((sample) => droppingChains(kernel, sample, TABLE_NAME)));
    // An inet chain that drops in both families is one problem.
    const texts = new Map(found.flat().flatMap((chain) => firewallProblem(chain)));
    return Array.from(texts, ([what, remedy]) => ({ what, remedy }));
  } catch (error) {
    const remedy = "`nft list ruleset` shows what other programs drop";
    return [{ what: `other programs' tables cannot be read: ${reasonOf(error)}`, remedy }];
  }
}

/** A rule that cannot be judged from outside may let services pass: that is no problem as long as nothing else shows one. */
function firewallProblem(found: DroppingChain): [what: string, remedy: string][] {
  const { family, table, chain, hook, verdict, unjudged } = found;
  if (unjudged.length > 0) return [];
  const what = `chain ${chain} (hook ${hook}) of table ${family} ${table} ${verdict === "drop" ? "drops" : "rejects"} packets of pods to services`;
  const remedy = `nft insert rule ${family} ${table} ${chain} ct status dnat accept, and keep it in that firewall's configuration`;
  return [[what, hook === "prerouting" ? "accept services' addresses in that firewall's configuration" : remedy]];
}
