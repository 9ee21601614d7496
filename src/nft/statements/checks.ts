/** Checks a program's values against their shape before they are used, because the Table does not check typed values. */
import {
  callback,
  either,
  flag,
  handlers,
  integer,
  isObject,
  list,
  namesOf,
  oneOf,
  optional,
  record,
  type Shape,
  text,
  value,
  variants,
} from "../../base/shape.js";
import type { Family } from "../kernel/kernel.js";
import { hooksOf, isOfDevices, kernelBaseOf, prioritiesOf } from "../language/hooks-and-priorities.js";
import { OBJECTS } from "../language/object-kinds.js";
import type { ChainSpec } from "./rule.js";
import type { SetSpec as FullSetSpec } from "../language/set-spec.js";
import { check, FieldError } from "../language/fields/field-error.js";
import { comment, name, SET } from "../language/vocabulary.js";

const anyList = (of: string): Shape<unknown> => value(`a list of ${of}`, Array.isArray);

function numberOrName(
  expected: string,
  isNumber: (given: unknown) => boolean,
  names: Readonly<object>,
): Shape<unknown> {
  const known = namesOf(names as Readonly<Record<string, number>>);
  return either(`${expected} or one of ${known.join(", ")}`, value(expected, isNumber), oneOf(...known));
}

/** The hook that calls a chain, in tables of this family. */
function baseChain(family: Family): Shape<unknown> {
  const hooks = hooksOf(family);
  const isHook = (given: unknown): boolean => Object.values(hooks).some((number) => number === given);
  return record(
    {
      type: oneOf("filter", "nat", "route"),
      hook: numberOrName("a hook's number", isHook, hooks),
      priority: numberOrName("an integer", (given) => Number.isInteger(given), prioritiesOf(family)),
      policy: optional(oneOf("accept", "drop")),
      devices: optional(list(text("an interface's name", (given) => given !== ""))),
    },
    "a base chain, with type, hook and priority",
  );
}

/** By family. Made once, because the proxier declares chains at each change. */
const chains = new Map<Family, Shape<unknown>>();

function chainOf(family: Family): Shape<unknown> {
  let chain = chains.get(family);
  if (chain === undefined) {
    const fields = {
      chain: name,
      base: optional(baseChain(family)),
      rules: anyList("rules"),
      comment: optional(comment),
    };
    chains.set(family, (chain = record(fields, "an object that describes a chain")));
  }
  return chain;
}

/** Checks a chain for tables of this family, but not its rules, which are checked while they are lowered. Throws FieldError. */
export function checkChain(spec: unknown, family: Family): void {
  checkNamed("chain", chainOf(family), spec);
  const { chain, base } = spec as ChainSpec;
  if (base === undefined) return;
  const needsDevices = isOfDevices(family, kernelBaseOf(base, family).hook);
  if (needsDevices !== (base.devices ?? []).length > 0)
    throw new FieldError(
      `chain ${chain}, base, devices`,
      needsDevices ? "devices, which this hook needs" : "none at this hook",
      base.devices,
    );
}

const KEPT_SET = { ...SET, keep: optional(flag) };
const DECLARED_SET = record(KEPT_SET, "an object that describes a set");
/** Checks a set. Throws FieldError. */
export function checkSet(spec: unknown): void {
  checkNamed("set", DECLARED_SET, spec);
  const { set, keep, dynamic, data } = spec as FullSetSpec & { readonly keep?: boolean };
  const hasTargets = data !== undefined && !Array.isArray(data);
  if (keep === true && (dynamic === true || hasTargets))
    throw new FieldError(`set ${set}, keep`, "a set that is not dynamic, and no map of verdicts or objects", true);
}

const OBJECT = variants("kind", OBJECTS);
/** Checks a named object. Throws FieldError. */
export function checkObject(spec: unknown): void {
  const { kind, object } = isObject(spec) ? spec : {};
  check(OBJECT, typeof kind === "string" && typeof object === "string" ? `${kind} ${object}` : "object", spec);
}

/** Checks an object whose field `kind` names it in errors. */
function checkNamed(kind: "chain" | "set", shape: Shape<unknown>, given: unknown): void {
  const own = isObject(given) ? given[kind] : undefined;
  check(shape, typeof own === "string" ? `${kind} ${own}` : kind, given);
}

const family = oneOf("inet", "ip", "ip6", "arp", "bridge", "netdev");
/** Our rules in a chain of another table. */
export const insertion = record({
  family,
  table: name,
  chain: name,
  mode: oneOf("insert", "append"),
  rules: anyList("rules"),
});

export const applyOptions = record({ rebuild: optional(flag), repair: optional(flag) });

export const tableOptions = record({
  family,
  name,
  comment: optional(comment),
  own: optional(flag),
  ownerMark: optional(text("a word", (given) => given !== "")),
  clock: optional(handlers({ now: callback() })),
  gracePeriodMs: optional(integer("milliseconds, a whole number of at least 0", 0, Number.MAX_SAFE_INTEGER)),
  pieceElements: optional(integer("a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER)),
});

export const printOptions = record({ family, sets: optional(list(record(KEPT_SET, "a set"))) });

const bytes = optional(integer("a number of bytes from 1 to 4294967295", 1, 0xffffffff));
const namespace = { netns: optional(text("a path", (given) => given !== "")), receiveBufferBytes: bytes } as const;
/** The kernel's TASK_COMM_LEN is 16, with the NUL. */
const programName = text(
  "a name of 1 to 15 bytes",
  (given) => given !== "" && Buffer.byteLength(given) <= 15 && !given.includes("\0"),
);
export const kernelOptions = record({ ...namespace, sendBufferBytes: bytes, programName: optional(programName) });
export const conntrackOptions = record(namespace);

const wait = optional(integer("milliseconds, a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER));
export const watchOptions = record({ firstWaitMs: wait, longestWaitMs: wait });
export const watchHandlers = handlers({ changed: callback(), lost: callback(), failed: callback() });

/** Options of one element. */
export const elementOptions = record({
  timeoutMs: optional(integer("milliseconds, a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER)),
  comment: optional(comment),
});
