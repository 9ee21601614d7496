/** Actions that end the rule, and those that hand the packet to another place: a chain, a program, a device or a log. */
import { either, flag, integer, list, namesOf, oneOf, optional, text, type RecordOf } from "../../base/shape.js";
import { addressBytes } from "../../base/ip.js";
import { isQuotable, MAX_LOG_PREFIX_BYTES } from "../bytes/names-and-comments.js";
import { IpProto, RejectType, SynproxyFlag, VERDICT_REGISTER } from "../kernel/constants.js";
import { FieldError } from "../language/fields/field-error.js";
import { ICMP_CODES, ICMPV6_CODES, ICMPX_CODES } from "../language/fields/field-types.js";
import { parseVerdict, VERDICT } from "../language/verdicts.js";
import {
  address,
  generatedField,
  LOG_FLAGS,
  LOG_LEVELS,
  name,
  port,
  positiveU32,
  rangeShape,
  u32,
} from "../language/vocabulary.js";
import { NFPROTO, requireL4proto, requireVersion, versionOf } from "../lowering/dependencies.js";
import { operand } from "../lowering/keys.js";
import { hostU32, immediate, type LowerContext, lowered, type Lowered, portBytes } from "../lowering/lowered.js";
import { INTERNET, kind, TRACKED } from "./kind.js";

const REJECTS = {
  ip: { codes: ICMP_CODES, rejectType: RejectType.icmpUnreachable },
  ip6: { codes: ICMPV6_CODES, rejectType: RejectType.icmpUnreachable },
  inet: { codes: ICMPX_CODES, rejectType: RejectType.icmpxUnreachable },
} as const;

const REJECT = { with: optional(oneOf(...namesOf({ ...ICMP_CODES, ...ICMPV6_CODES }), "tcp-reset")) } as const;

function reject({ with: how = "port-unreachable" }: RecordOf<typeof REJECT>, context: LowerContext): Lowered {
  if (how === "tcp-reset") {
    // nft reads its text so, and other statements of the rule then see TCP only.
    requireL4proto(context, IpProto.tcp, how, "first");
    return lowered({ type: "reject", rejectType: RejectType.tcpReset, code: 0 });
  }
  const { family, facts } = context;
  if (facts.cannotReject)
    throw new FieldError(
      "",
      "a condition on ip or ip6 alone before it: nft refuses to reject other protocols",
      "reject",
    );
  const { codes, rejectType } = REJECTS[family === "ip" || family === "ip6" ? family : "inet"];
  const known: Readonly<Record<string, number>> = codes;
  const code = how === "host-unreachable" && family === "ip6" ? "addr-unreachable" : how;
  if (!Object.hasOwn(known, code))
    throw new FieldError(
      "with",
      `one of ${Object.keys(known).join(", ")}, tcp-reset in a table of family ${family}`,
      how,
    );
  return lowered({ type: "reject", rejectType, code: known[code] });
}

const LOG = {
  prefix: optional(
    // nft reads $name as a variable.
    text(
      "a prefix of 1 to 127 bytes without quotes, control characters and $",
      (given) => given !== "" && isQuotable(given, MAX_LOG_PREFIX_BYTES) && !given.includes("$"),
    ),
  ),
  level: optional(either("a syslog level, by name or from 0 to 8", integer("", 0, 8), oneOf(...LOG_LEVELS))),
  flags: optional(list(oneOf(...namesOf(LOG_FLAGS)), 1)),
  group: optional(integer("a group from 0 to 65535", 0, 0xffff)),
  /** Bytes of the packet that the group gets. */
  snaplen: optional(u32),
  /** Packets that the kernel collects before it sends them to the group. */
  queueThreshold: optional(integer("a number from 0 to 65535", 0, 0xffff)),
} as const;

function log({ prefix, level, group, snaplen, queueThreshold: qthreshold, flags }: RecordOf<typeof LOG>): Lowered {
  if (group !== undefined && (level !== undefined || flags !== undefined))
    throw new FieldError("group", "a level and flags, or a group, not both", group);
  if (group === undefined && (snaplen ?? qthreshold) !== undefined)
    throw new FieldError("group", "a group, which snaplen and queueThreshold need", group);
  const number = typeof level === "string" ? LOG_LEVELS.indexOf(level) : level;
  if (number === LOG_LEVELS.indexOf("audit") && (prefix ?? flags) !== undefined)
    throw new FieldError("level", "another level than audit, which has no prefix and flags", level);
  const bits = flags?.reduce((all, one) => all | LOG_FLAGS[one], 0);
  return lowered({ type: "log", prefix, group, snaplen, qthreshold, level: number, flags: bits });
}

const queueNumber = integer("a queue from 0 to 65535", 0, 0xffff);
const queueRange = rangeShape("a queue, { from, to }, or a field", queueNumber);

const DUP = { address: optional(address), device: optional(positiveU32) } as const;

function dup({ address: to, device }: RecordOf<typeof DUP>, { family }: LowerContext): Lowered {
  if (family === "netdev" && to !== undefined)
    throw new FieldError("address", "no address in a table of family netdev", to);
  if (family === "netdev") {
    if (device === undefined) throw new FieldError("device", "a device in a table of family netdev", device);
    return lowered(immediate(hostU32(device)), { type: "dup", sregDev: 1 });
  }
  const bytes = to === undefined ? undefined : addressBytes(to)!;
  if (bytes === undefined || versionOf(family) !== versionOfBytes(bytes))
    throw new FieldError("address", `an address of the table's family, which must be ip or ip6, not ${family}`, to);
  if (device === undefined) return lowered(immediate(bytes), { type: "dup", sregAddr: 1 });
  return lowered(immediate(bytes), immediate(hostU32(device), 2), { type: "dup", sregAddr: 1, sregDev: 2 });
}

const versionOfBytes = ({ length }: Uint8Array): 4 | 6 => (length === 4 ? 4 : 6);

const TPROXY = { address: optional(address), port: optional(port) } as const;

function tproxy({ address: to, port: toPort }: RecordOf<typeof TPROXY>, context: LowerContext): Lowered {
  if (to === undefined && toPort === undefined) throw new FieldError("", "an address or a port", "tproxy");
  const bytes = to === undefined ? undefined : addressBytes(to)!;
  const version = bytes === undefined ? versionOf(context.family) : versionOfBytes(bytes);
  // In inet, packets of the other version end the rule.
  if (version !== undefined && context.family !== "inet") requireVersion(context, version, to);
  if (context.facts.l4proto !== IpProto.tcp && context.facts.l4proto !== IpProto.udp)
    throw new FieldError(
      "",
      'a match of tcp or udp before it, such as { field: "meta l4proto", value: "tcp" }',
      "tproxy",
    );
  const portReg = bytes === undefined ? 1 : 2;
  return lowered(
    ...(bytes === undefined ? [] : [immediate(bytes)]),
    ...(toPort === undefined ? [] : [immediate(portBytes(toPort), portReg)]),
    {
      type: "tproxy",
      family: version === undefined ? 0 : NFPROTO[version],
      regAddr: bytes && 1,
      regPort: toPort === undefined ? undefined : portReg,
    },
  );
}

export const ENDINGS = {
  /**
   * Decides about the packet. `accept`, `drop`: the chain ends. `return`: continues after the rule that jumped here. `continue`: continues with the next rule.
   * `jump CHAIN`: runs a chain, and comes back. `goto CHAIN`: runs a chain, and does not come back.
   */
  verdict: kind({ verdict: VERDICT }, ({ verdict }) =>
    lowered({ type: "immediate", dreg: VERDICT_REGISTER, data: parseVerdict(verdict) }),
  ),
  /** Drops the packet, and answers with an error. Families differ: ip has ICMP's codes, ip6 has ICMPv6's, the others have the four that both share. Default: port-unreachable. */
  reject: kind(REJECT, reject, [...TRACKED, "netdev"]),
  /** Writes to the kernel's log, or sends the packet to a group of listeners (`group`). */
  log: kind(LOG, log),
  /** The packet gets no connection. Only before connection tracking, at priority raw. */
  notrack: kind({}, () => lowered({ type: "notrack" }), [...TRACKED, "netdev"], ["prerouting", "output", "ingress"]),
  /** Gives the packet to a program. `fanout`: by CPU. `bypass`: accepts the packet if no program listens. */
  queue: kind(
    {
      num: either("a queue, { from, to }, or a field", either("a queue", queueNumber, queueRange), generatedField),
      bypass: optional(flag),
      fanout: optional(flag),
    },
    ({ num, bypass, fanout }, context) => {
      // NFT_QUEUE_FLAG_*
      const flags = (bypass === true ? 1 : 0) | (fanout === true ? 2 : 0);
      if (typeof num === "object" && "field" in num)
        return lowered(...operand(context, num).load(1), { type: "queue", sregQnum: 1, flags });
      const { from, to } = typeof num === "number" ? { from: num, to: num } : num;
      if (to - from === 0xffff) throw new FieldError("num", "at most 65535 queues", num);
      return lowered({ type: "queue", num: from, total: to - from + 1, flags });
    },
    TRACKED,
  ),
  /** Gives the packet to a local socket, and does not change it. Only for tcp and udp. */
  tproxy: kind(TPROXY, tproxy, INTERNET, ["prerouting"]),
  /** Sends a copy: in ip and ip6 to an address (out of a device), in netdev out of a device. Devices are interface indices. */
  dup: kind(DUP, dup),
  /** Sends the packet out of a device, with an address to that neighbour. Only in netdev. */
  fwd: kind(
    { device: positiveU32, address: optional(address) },
    ({ device, address: to }) => {
      const out = immediate(hostU32(device));
      if (to === undefined) return lowered(out, { type: "fwd", sregDev: 1 });
      const bytes = addressBytes(to)!;
      const nfproto = NFPROTO[versionOfBytes(bytes)];
      return lowered(out, immediate(bytes, 2), { type: "fwd", sregDev: 1, sregAddr: 2, nfproto });
    },
    ["netdev"],
  ),
  /** Answers for the server until the handshake is complete. Only for tcp, of connections that are not tracked yet. */
  synproxy: kind(
    {
      mss: optional(integer("a number from 0 to 65535", 0, 0xffff)),
      wscale: optional(integer("a number from 0 to 14", 0, 14)),
      sackPerm: optional(flag),
      timestamp: optional(flag),
    },
    ({ mss, wscale, sackPerm, timestamp }) => {
      const flags =
        (mss === undefined ? 0 : SynproxyFlag.mss) |
        (wscale === undefined ? 0 : SynproxyFlag.wscale) |
        (sackPerm === true ? SynproxyFlag.sackPerm : 0) |
        (timestamp === true ? SynproxyFlag.timestamp : 0);
      return lowered({ type: "synproxy", mss: mss ?? 0, wscale: wscale ?? 0, flags });
    },
    INTERNET,
    ["input", "forward"],
  ),
  /** The connection skips the hooks from now on. Only at the forward hook. */
  flow: kind({ flowtable: name }, ({ flowtable }) => lowered({ type: "flow_offload", flowtable }), INTERNET, [
    "forward",
  ]),
};
