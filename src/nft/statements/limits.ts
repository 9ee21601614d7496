/** Actions that count packets, and hold up to a limit or above it. */
import { flag, oneOf, optional, type RecordOf } from "../../base/shape.js";
import { LimitType } from "../kernel/constants.js";
import { FieldError } from "../language/fields/field-error.js";
import { LIMIT_SECONDS, positive, positiveU32, rateUnit } from "../language/vocabulary.js";
import { lowered, type Lowered } from "../lowering/lowered.js";
import { kind, TRACKED } from "./kind.js";

/** nft's default, which it always sends. */
const DEFAULT_BURST = 5;
/** NFT_LIMIT_F_INV, NFT_CONNLIMIT_F_INV and NFT_QUOTA_F_INV: matches above the limit. */
const beyond = (over: boolean | undefined): number => (over === true ? 1 : 0);
const BYTE_UNITS = { bytes: 1n, kbytes: 1024n, mbytes: 1048576n } as const;

const LIMIT = {
  rate: positive,
  per: rateUnit,
  unit: optional(oneOf("packets", "bytes", "kbytes", "mbytes")),
  burst: optional(positiveU32),
  over: optional(flag),
} as const;

export function limited({ rate, per, unit = "packets", burst, over }: RecordOf<typeof LIMIT>): Lowered {
  const isPackets = unit === "packets";
  const size = isPackets ? 1n : BYTE_UNITS[unit];
  const [most, least] = [BigInt(rate) * size, BigInt(burst ?? (isPackets ? DEFAULT_BURST : 0)) * size];
  if (most >= 2n ** 64n) throw new FieldError("rate", "a rate of less than 2^64 bytes", rate);
  if (least >= 2n ** 32n) throw new FieldError("burst", "a burst of less than 4096 mbytes", burst);
  return lowered({
    type: "limit",
    rate: most,
    burst: Number(least),
    limitType: isPackets ? LimitType.pkts : LimitType.pktBytes,
    unit: BigInt(LIMIT_SECONDS[per]),
    flags: beyond(over),
  });
}

const CONNECTIONS = { count: positiveU32, over: optional(flag) } as const;

export function connectionLimit({ count, over }: RecordOf<typeof CONNECTIONS>): Lowered {
  return lowered({ type: "connlimit", count, flags: beyond(over) });
}

export const LIMITS = {
  /** Counts the packets and bytes that reach it. */
  counter: kind({}, () => lowered({ type: "counter" })),
  /** Records when a packet last reached it. */
  last: kind({}, () => lowered({ type: "last" })),
  /** Holds for packets up to the rate, or above it (`over`). `burst` has the same unit as the rate. */
  limit: kind(LIMIT, limited),
  /** Holds until `bytes` have passed, or after that (`over`). */
  quota: kind({ bytes: positive, over: optional(flag) }, ({ bytes, over }) =>
    lowered({ type: "quota", bytes: BigInt(bytes), flags: beyond(over) }),
  ),
  /** Holds if the rule's connections are at most `count`, or more (`over`). */
  connections: kind(CONNECTIONS, connectionLimit, TRACKED),
};
