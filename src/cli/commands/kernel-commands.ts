/** The commands that change the kernel without a daemon: `handover` and `cleanup`. */
import { parseDuration } from "../../config/duration.js";
import { command } from "../command.js";
import { logLevel } from "../options.js";
import { BadValue, flag, type OptionsOf } from "../read-flags.js";

/** Returns milliseconds. */
function handoverTime(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms >= 1000 && ms <= 86_400_000) return ms;
  throw new BadValue("must be a duration from 1s to 24h");
}

const HANDOVER = [
  flag("--for <duration>", "serve for this long, from 1s to 24h", {
    read: handoverTime,
    default: 300_000,
    defaultText: "5m",
  }),
  flag("--remove", "remove the copy now; the next start and cleanup also remove it", { conflicts: "for" }),
  logLevel("info"),
] as const;
export type HandoverOptions = OptionsOf<typeof HANDOVER>;

export const handover = command({
  name: "handover",
  description: "leave a copy of the rules that serves until the next proxy is ready",
  flags: HANDOVER,
  notes: "The copy serves new connections that no other rules serve. It does not follow changes of services.",
  examples: [
    ["Serve for ten minutes while another program starts", "nft-proxier handover --for 10m"],
    ["Remove the copy", "nft-proxier handover --remove"],
  ],
  run: async (options) => (await import("./handover.js")).handoverCommand(options),
});

export const cleanup = command({
  name: "cleanup",
  description: "remove all rules of nft-proxier and kube-proxy from the kernel",
  flags: [logLevel("info")],
  notes:
    "Removes the tables ip kube-proxy and ip6 kube-proxy, copies of a handover, the flowtable, and the remains of kube-proxy's other modes in iptables-nft, iptables-legacy and IPVS.",
  examples: [["Remove all rules before another proxy starts", "nft-proxier cleanup"]],
  run: async (options) => (await import("./cleanup.js")).cleanupCommand(options),
});
