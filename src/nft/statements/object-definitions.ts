/** The definitions of named objects: their data in the kernel's terms, how they differ from the kernel's, and their text. Pure. */
import { isDeepStrictEqual } from "node:util";

import { namesOf } from "../../base/shape.js";
import { IpProto, NfProto, QuotaFlag, SynproxyFlag } from "../kernel/constants.js";
import type { Family, ObjectData, ObjectDump, ObjectRef } from "../kernel/kernel.js";
import { normalizeExpr } from "../kernel/normalize.js";
import type { Of } from "../printing/registers.js";
import { limitText } from "../printing/statement-text.js";
import { limited } from "./limits.js";
import { FieldError, within } from "../language/fields/field-error.js";
import { checkObject } from "./checks.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { objectKey, type ObjectSpec, type SpecOf, type StateName, STATES } from "../language/object-kinds.js";
import { OBJECT_TYPES } from "../language/vocabulary.js";

/** A desired object. */
export interface DesiredObject extends ObjectRef {
  readonly spec: ObjectSpec;
  readonly data: ObjectData;
}

/** Throws FieldError if the kernel or nft cannot hold the specification. */
export function desiredObject(spec: ObjectSpec, family: Family): DesiredObject {
  const { kind, object } = spec;
  checkObject(spec);
  if ((family === "arp" || family === "netdev") && (kind.startsWith("ct ") || kind === "synproxy"))
    throw new FieldError(objectKey(spec), `an object of tables of family ${family}, which have no connections`, kind);
  return { object, objType: OBJECT_TYPES[kind], spec, data: within(objectKey(spec), () => dataOf(spec, family)) };
}

function dataOf(spec: ObjectSpec, family: Family): ObjectData {
  switch (spec.kind) {
    case "counter":
      return { type: "counter" };
    case "quota":
      return { type: "quota", bytes: BigInt(spec.bytes), flags: spec.over === true ? QuotaFlag.invert : 0 };
    case "limit":
      return normalizeExpr(limited(spec).exprs[0]) as ObjectData;
    case "ct helper":
      return { type: "ct helper", name: spec.helper, ...protocolsOf(spec, family) };
    case "ct timeout":
      return { type: "ct timeout", ...protocolsOf(spec, family), timeouts: timeoutsOf(spec) };
    case "ct expectation": {
      const { dport, timeout, size } = spec;
      return { type: "ct expectation", ...protocolsOf(spec, family), dport, timeout, size };
    }
    case "synproxy": {
      const { mss, wscale, timestamp, sackPerm } = spec;
      const flags =
        SynproxyFlag.mss |
        SynproxyFlag.wscale |
        (sackPerm === true ? SynproxyFlag.sackPerm : 0) |
        (timestamp === true ? SynproxyFlag.timestamp : 0);
      return { type: "synproxy", mss, wscale, flags };
    }
    case "secmark":
      return { type: "secmark", context: spec.context };
  }
}

type Protocols = SpecOf<"ct helper"> | SpecOf<"ct timeout"> | SpecOf<"ct expectation">;

function protocolsOf({ kind, object, protocol: l4, l3proto: given }: Protocols, family: Family) {
  const own = family === "ip" || family === "ip6" ? family : undefined;
  const version = given ?? own ?? "inet";
  if (own !== undefined && version !== own) throw new FieldError(`${kind} ${object}, l3proto`, own, version);
  // Its addresses have one version.
  if (kind === "ct expectation" && version === "inet")
    throw new FieldError(`${kind} ${object}, l3proto`, `ip or ip6 in a table of family ${family}`, given);
  return { l3proto: NfProto[version], l4proto: IpProto[l4] };
}

function timeoutsOf({ object, protocol: l4, policy: given }: SpecOf<"ct timeout">): (number | undefined)[] {
  const states: readonly string[] = STATES[l4];
  const other = Object.keys(given).find((state) => !states.includes(state));
  if (other !== undefined)
    throw new FieldError(`ct timeout ${object}, policy, ${other}`, `a state of ${l4}: ${states.join(", ")}`, other);
  const timeouts = states.map((state) => given[state as StateName]);
  return timeouts.slice(0, timeouts.findLastIndex((value) => value !== undefined) + 1);
}

/** Whether the kernel's object has the definition, whatever its use. Undefined values in the desired definition may be anything. */
export function sameDefinition(found: ObjectData, desired: ObjectData): boolean {
  if (desired.type === "counter") return found.type === "counter";
  if (desired.type === "quota" && found.type === "quota")
    return found.bytes === desired.bytes && (((found.flags ?? 0) ^ (desired.flags ?? 0)) & QuotaFlag.invert) === 0;
  if (desired.type === "ct timeout" && found.type === "ct timeout") {
    const { timeouts, ...rest } = desired;
    const { timeouts: known, ...others } = found;
    return isDeepStrictEqual(rest, others) && timeouts.every((value, i) => value === undefined || value === known[i]);
  }
  // The kernel may have the helper for one of the IP versions only.
  if (desired.type === "ct helper" && found.type === "ct helper" && desired.l3proto === NfProto.inet)
    return isDeepStrictEqual({ ...found, l3proto: NfProto.inet }, desired);
  return isDeepStrictEqual(found, desired);
}

/** The change that an object needs. update: the kernel changes it in place. */
export type ObjectFate = "keep" | "create" | "update" | "recreate" | "delete";

export function objectFate(found: ObjectDump | undefined, desired: DesiredObject | undefined): ObjectFate {
  if (found === undefined) return desired === undefined ? "keep" : "create";
  if (desired === undefined) return "delete";
  const { data, userdata } = found;
  if (commentOf(userdata) !== desired.spec.comment) return "recreate";
  if (sameDefinition(data, desired.data)) return "keep";
  // The only kinds with an `update` operation (nft_quota.c, nft_synproxy.c).
  return data.type === "quota" || data.type === "synproxy" ? "update" : "recreate";
}

/** Returns the data with the use of an object that it replaces. */
export function withUse(data: ObjectData, former: ObjectDump | undefined): ObjectData {
  const use = former?.data;
  if (data.type === "counter" && use?.type === "counter") return use;
  if (data.type !== "quota" || use?.type !== "quota") return data;
  const consumed = use.consumed ?? 0n;
  return { ...data, consumed: consumed < data.bytes ? consumed : data.bytes };
}

/** The object as a block of nft's text. */
export function renderObject({ spec, data }: DesiredObject, family: Family): string[] {
  const note = spec.comment === undefined ? [] : [`\t\tcomment "${spec.comment}"`];
  return [`\t${objectKey(spec)} {`, ...note, ...linesOf(spec, data, family).map((line) => `\t\t${line}`), "\t}"];
}

/** @param data has the use, if there is any. */
function linesOf(spec: ObjectSpec, data: ObjectData, family: Family): string[] {
  switch (spec.kind) {
    case "counter": {
      const { packets = 0n, bytes = 0n } = data.type === "counter" ? data : {};
      return [`packets ${packets} bytes ${bytes}`];
    }
    case "quota": {
      const { consumed = 0n } = data.type === "quota" ? data : {};
      const used = consumed === 0n ? "" : ` used ${consumed} bytes`;
      return [`${spec.over === true ? "over " : ""}${spec.bytes} bytes${used}`];
    }
    case "limit":
      return [limitText(limited(spec).exprs[0] as Of<"limit">).replace("limit ", "")];
    case "ct helper":
      return [`type "${spec.helper}" protocol ${spec.protocol}`, versionLine(spec, family)];
    case "ct timeout": {
      const states = Object.entries(spec.policy).filter(([, value]) => value !== undefined);
      const values = states.map(([state, value]) => `${state} : ${value}`).join(", ");
      return [`protocol ${spec.protocol}`, versionLine(spec, family), `policy = { ${values} }`];
    }
    case "ct expectation": {
      const { protocol: l4, dport, timeout, size } = spec;
      // The kernel takes nft's milliseconds for seconds (nft_ct_expect_obj_eval).
      return [`protocol ${l4}`, `dport ${dport}`, `timeout ${timeout}ms`, `size ${size}`, versionLine(spec, family)];
    }
    case "synproxy": {
      const { mss, wscale, timestamp, sackPerm } = spec;
      const options = [...(timestamp === true ? ["timestamp"] : []), ...(sackPerm === true ? ["sack-perm"] : [])];
      return [`mss ${mss}`, `wscale ${wscale}`, ...(options.length === 0 ? [] : [options.join(" ")])];
    }
    case "secmark":
      return [`"${spec.context}"`];
  }
}

function versionLine(spec: Protocols, family: Family): string {
  const { l3proto: number } = protocolsOf(spec, family);
  return `l3proto ${namesOf(NfProto).find((one) => NfProto[one] === number)}`;
}
