/** The kinds of named objects as shapes (base/shape.ts), and the names of objects. */
import {
  type Fields,
  flag,
  integer,
  namesOf,
  oneOf,
  optional,
  record,
  type RecordOf,
  text,
  type VariantOf,
} from "../../base/shape.js";
import type { Expr } from "../kernel/kernel.js";
import { isQuotable } from "../bytes/names-and-comments.js";
import { comment, LIMIT_SECONDS, type MapData, name, OBJECT_TYPES, type ObjectKind } from "./vocabulary.js";

const count = (what: string, most: number): ReturnType<typeof integer> => integer(`${what} from 1 to ${most}`, 1, most);
const U32 = 0xffffffff;
const seconds = count("seconds", U32);
const OBJECT = { object: name, comment: optional(comment) } as const;
const protocol = oneOf("tcp", "udp");
/** The IP version of the connections. Default: the table's, which is both in `inet`. */
const l3proto = optional(oneOf("ip", "ip6", "inet"));

/** Attributes of CTA_TIMEOUT_TCP_* and CTA_TIMEOUT_UDP_*, from 1, in nft's words. */
export const STATES = {
  tcp: [
    "syn_sent",
    "syn_recv",
    "established",
    "fin_wait",
    "close_wait",
    "last_ack",
    "time_wait",
    "close",
    "syn_sent2",
    "retrans",
    "unack",
  ],
  udp: ["unreplied", "replied"],
} as const;
export type StateName = (typeof STATES)[keyof typeof STATES][number];
const policy = Object.fromEntries(
  [...STATES.tcp, ...STATES.udp].map((state) => [state, optional(seconds)]),
) as unknown as Readonly<Record<StateName, ReturnType<typeof optional<number>>>>;

/** Every kind of named object, by `kind`, in nft's words. */
export const OBJECTS = {
  /** Counts packets and bytes. */
  counter: OBJECT,
  /** Matches until `bytes` have passed, or with `over`, after that. */
  quota: { ...OBJECT, bytes: count("bytes", Number.MAX_SAFE_INTEGER), over: optional(flag) },
  /** Matches up to the rate, or with `over`, above it. Defaults: packets, with a burst of 5; bytes have no burst. */
  limit: {
    ...OBJECT,
    rate: count("a rate", Number.MAX_SAFE_INTEGER),
    per: oneOf(...namesOf(LIMIT_SECONDS)),
    unit: optional(oneOf("packets", "bytes", "kbytes", "mbytes")),
    burst: optional(integer("a number from 0 to 4294967295", 0, U32)),
    over: optional(flag),
  },
  /** Assigns the kernel's helper of this name ("ftp") to new connections. Its module must be available. */
  "ct helper": {
    ...OBJECT,
    helper: text("a helper's name of 1 to 15 bytes", (given) => given !== "" && isQuotable(given, 15)),
    protocol,
    l3proto,
  },
  /** Gives new connections other timeouts, in seconds by state. Unlisted states keep those of the system when the object is created. */
  "ct timeout": { ...OBJECT, protocol, l3proto, policy: record(policy) },
  /** Expects up to `size` connections between the same addresses, to this port. Each is expected for `timeout` seconds. */
  "ct expectation": {
    ...OBJECT,
    protocol,
    l3proto: optional(oneOf("ip", "ip6")),
    dport: count("a port", 0xffff),
    timeout: seconds,
    size: count("a number", 255),
  },
  synproxy: {
    ...OBJECT,
    mss: count("bytes", 0xffff),
    wscale: integer("a number from 0 to 14", 0, 14),
    timestamp: optional(flag),
    sackPerm: optional(flag),
  },
  /** Marks packets for SELinux with a security context. */
  secmark: { ...OBJECT, context: text("a security context", (given) => given !== "" && isQuotable(given, 255)) },
} as const satisfies Record<ObjectKind, Fields>;

export type ObjectSpec = VariantOf<"kind", typeof OBJECTS>;
export type SpecOf<K extends ObjectKind> = { readonly kind: K } & RecordOf<(typeof OBJECTS)[K]>;

/** The name of an object among all kinds. */
export interface ObjectName {
  readonly kind: ObjectKind;
  readonly object: string;
}

/** "counter web". No name of a chain or set contains a space. */
export function objectKey({ kind, object }: ObjectName): string {
  return `${kind} ${object}`;
}

/** The key of an object in the kernel: "counter web", "flowtable f". */
export function keyOfType(objType: number, object: string): string {
  const kind = namesOf(OBJECT_TYPES).find((one) => OBJECT_TYPES[one] === objType);
  return `${kind ?? `object-${objType}`} ${object}`;
}

/** The key of the object that an expression names. */
export function objectNamed(expr: Extract<Expr, { type: "objref" }>): string | undefined {
  const { immType, immName } = expr;
  return immType === undefined || immName === undefined ? undefined : keyOfType(immType, immName);
}

/** The kind of a map of objects. */
export function kindOfMap({ data }: { readonly data?: MapData | undefined }): ObjectKind | undefined {
  return typeof data === "object" && "object" in data ? data.object : undefined;
}
