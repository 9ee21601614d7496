/** Actions that look up fields in sets and maps, or put them there. */
import { oneOf, optional, record, type RecordOf } from "../../base/shape.js";
import { addressBytes } from "../../base/ip.js";
import { DynsetOp, register, VERDICT_REGISTER } from "../kernel/constants.js";
import { FieldError } from "../language/fields/field-error.js";
import { kindOfMap } from "../language/object-kinds.js";
import { dataFields } from "../language/schema.js";
import type { SetSpec } from "../language/set-spec.js";
import { parseVerdict, VERDICT } from "../language/verdicts.js";
import {
  address,
  key,
  mapOf,
  milliseconds,
  name,
  OBJECT_TYPES,
  objectKind,
  port,
  positive,
  positiveU32,
  rateUnit,
} from "../language/vocabulary.js";
import { inlineLookup } from "../lowering/inline-sets.js";
import { loadSetKey, lookUp } from "../lowering/keys.js";
import { hostU32, immediate, type LowerContext, lowered, type Lowered, portBytes } from "../lowering/lowered.js";
import { kind, TRACKED } from "./kind.js";
import { connectionLimit, limited } from "./limits.js";

const VMAP = { key, map: mapOf("verdict", VERDICT) } as const;

/** Applies the verdict that a named map, or one that comes with the rule, holds. */
function verdictMap({ key: fields, map }: RecordOf<typeof VMAP>, context: LowerContext): Lowered {
  if (typeof map === "string") {
    const spec = context.setSpec?.(map);
    if (spec !== undefined && spec.data !== "verdict") throw new FieldError("map", "a map of verdicts", map);
    return lookUp(context, fields, map, VERDICT_REGISTER);
  }
  const verdicts = map.map(([, verdict]) => parseVerdict(verdict));
  const rows = map.map(([row], index) => ({ place: `map[${index}][0]`, key: row, data: hostU32(index) }));
  return inlineLookup(context, { place: "key", fields }, rows, { dreg: VERDICT_REGISTER }, { verdicts });
}

const INTO_SET = {
  set: name,
  key,
  timeoutMs: optional(milliseconds),
  /**
   * Maps only: the constant data of the key, an address with or without a port. An existing entry keeps its data. nft 0.9.8 aborts when it lists an
   * address with a port here. Later versions print it.
   */
  data: optional(record({ address, port: optional(port) })),
} as const;

/** Puts the key, from word 0 on, into a dynamic set. Constant data is in the next 16-byte register. `counts`: the element's statement. */
function intoSet(
  op: keyof typeof DynsetOp,
  { key: fields, set, timeoutMs, data }: RecordOf<typeof INTO_SET>,
  context: LowerContext,
  counts?: Lowered,
): Lowered {
  const spec = context.setSpec?.(set);
  if (spec !== undefined) checkFilled(spec, { timeoutMs, data }, counts);
  const { exprs, words } = loadSetKey(context, fields, set);
  const timeout = timeoutMs === undefined ? {} : { timeout: BigInt(timeoutMs) };
  const dynset = { type: "dynset", set, op: DynsetOp[op], sregKey: 1, ...timeout } as const;
  if (counts !== undefined) return lowered(...exprs, { ...dynset, exprs: counts.exprs });
  if (data === undefined) return lowered(...exprs, dynset);
  const word = Math.ceil(words / 4) * 4;
  const bytes = addressBytes(data.address)!;
  const portWord = word + bytes.length / 4;
  if (portWord > 15)
    throw new FieldError("key", "a key that fits the kernel's registers together with the data", fields);
  const toPort = data.port === undefined ? [] : [immediate(portBytes(data.port), register(portWord))];
  return lowered(...exprs, immediate(bytes, register(word)), ...toPort, { ...dynset, sregData: register(word) });
}

/** Throws FieldError if packets cannot put this into the set or map. */
function checkFilled(
  spec: SetSpec,
  { timeoutMs, data }: Pick<RecordOf<typeof INTO_SET>, "timeoutMs" | "data">,
  counts?: Lowered,
): void {
  if (spec.dynamic !== true) throw new FieldError("set", "a set that is declared with dynamic: true", spec.set);
  // NFT_EXPR_GC: the kernel removes the set's elements without connections.
  if (spec.timeoutMs !== undefined && counts?.exprs[0].type === "connlimit")
    throw new FieldError(
      "set",
      "a set without timeouts, because the kernel counts no connections beside them",
      spec.set,
    );
  if (timeoutMs !== undefined && spec.timeoutMs === undefined)
    throw new FieldError("set", "a set that is declared with timeoutMs", spec.set);
  const given =
    data === undefined
      ? []
      : [data.address.includes(":") ? "ipv6_addr" : "ipv4_addr", ...(data.port === undefined ? [] : ["inet_service"])];
  const desired = dataFields(spec).join(" . ");
  if (given.join(" . ") !== desired)
    throw new FieldError("data", desired === "" ? "no data" : `data of ${desired}`, data);
}

const OBJECT = { kind: objectKind, name: optional(name), key: optional(key), map: optional(name) } as const;

/** A reference to an object: by its name, or by the map that holds it for the fields. */
function referToObject(
  { kind: of, name: object, key: fields, map }: RecordOf<typeof OBJECT>,
  context: LowerContext,
): Lowered {
  if (object !== undefined && fields === undefined && map === undefined)
    return lowered({ type: "objref", immType: OBJECT_TYPES[of], immName: object });
  if (object !== undefined || fields === undefined || map === undefined)
    throw new FieldError("", "a name, or a key and a map", object ?? map ?? of);
  const spec = context.setSpec?.(map);
  if (spec !== undefined && kindOfMap(spec) !== of) throw new FieldError("map", `a map of objects of kind ${of}`, map);
  const { exprs } = loadSetKey(context, fields, map);
  // The map may not be declared yet, but the text needs the kind.
  const kindOfText = context.isForText === true ? { immType: OBJECT_TYPES[of] } : {};
  return lowered(...exprs, { type: "objref", setSreg: 1, setName: map, ...kindOfText });
}

export const LOOKUPS = {
  /** Applies the verdict that a verdict map holds for the concatenated fields. Without an entry, continues. */
  vmap: kind(VMAP, verdictMap),
  /** Uses the named object `name`, or the one that a map of objects holds for the fields. Without an entry, the rule ends. */
  object: kind(OBJECT, referToObject),
  /** Adds the key to a dynamic set (or renews its timeout). timeoutMs overrides the set's default. */
  update: kind(
    {
      /** add: does not renew an element. delete: removes it. Default: update. */
      op: optional(oneOf("add", "update", "delete")),
      ...INTO_SET,
    },
    ({ op = "update", ...action }, context) => intoSet(op, action, context),
  ),
  /**
   * Holds if more than `count` open connections came here with this key. Otherwise the rule ends. A dynamic set without timeouts counts them. An element
   * keeps the `count` that it was created with. A NAT chain only sees the first packet of a connection: there, exactly `count` connections pass.
   */
  "connections-over": kind(
    { set: name, key, count: positiveU32 },
    (action, context) => intoSet("add", action, context, connectionLimit({ ...action, over: true })),
    TRACKED,
  ),
  /** Holds if packets came here with this key above the rate. Otherwise the rule ends. An element that waits longer than `timeoutMs` starts again. */
  "rate-over": kind(
    { set: name, key, timeoutMs: milliseconds, rate: positive, per: rateUnit, burst: positiveU32 },
    (action, context) => intoSet("update", action, context, limited({ ...action, over: true })),
  ),
};
