/** Checks a program's values against their shape before they are used, because the Table does not check typed values. */
import {
  callback,
  either,
  type Fields,
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
import { hooksOf, prioritiesOf } from "../language/hooks-and-priorities.js";
import { neverMatches } from "../language/never-matches.js";
import { OBJECTS } from "../language/object-kinds.js";
import type { ChainSpec, Rule, SetSpec as FullSetSpec } from "../language/rule.js";
import * as vocabulary from "../language/vocabulary.js";
import { FieldError } from "../language/field-error.js";

const { ACTIONS, comment, fieldMatch, name, problemOfAction, SET } = vocabulary;

/** Throws FieldError for the first problem of the value, which the error calls `path`. */
export function check(shape: Shape<unknown>, path: string, given: unknown): void {
  const problem = shape.find(path, given);
  if (problem !== undefined) throw new FieldError(problem.path, problem.expected, problem.value, problem.nearest);
}

const ANY_ACTION = variants("action", ACTIONS);
const STATEMENTS = {
  field: fieldMatch,
  action: {
    expected: "an action",
    find: (path: string, given: unknown) => ANY_ACTION.find(path, given) ?? problemOfAction(path, given),
  },
};
const STATEMENT = 'a statement, with "field" or "action"';
/** One condition or one action. */
const statement: Shape<unknown> = {
  expected: STATEMENT,
  find(path, given) {
    const kind = isObject(given) ? (["action", "field"] as const).find((tag) => tag in given) : undefined;
    return kind === undefined ? { path, expected: STATEMENT, value: given } : STATEMENTS[kind].find(path, given);
  },
};

const anyList = (of: string): Shape<unknown> => value(`a list of ${of}`, Array.isArray);
const RULE = record({ statements: anyList("statements"), comment: optional(comment) }, "a rule, with statements");

/** Checks a rule for tables of this family. Throws FieldError. */
export function checkRule(path: string, rule: unknown, family: Family): void {
  check(RULE, path, rule);
  for (const [index, one] of (rule as Rule).statements.entries()) {
    const at = `${path}, statement ${index}`;
    check(statement, at, one);
    const never = neverMatches(family, one);
    if (never !== undefined) throw new FieldError(at, `a statement that packets of family ${family} can match`, never);
  }
}

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

/** Checks a chain for tables of this family. Throws FieldError. */
export function checkChain(spec: unknown, family: Family): void {
  const fields = {
    chain: name,
    base: optional(baseChain(family)),
    rules: anyList("rules"),
    comment: optional(comment),
  };
  checkNamed("chain", fields, "chain", spec);
  const { chain, rules } = spec as ChainSpec;
  for (const [index, rule] of rules.entries()) checkRule(`chain ${chain}, rule ${index}`, rule, family);
}

const KEPT_SET = { ...SET, keep: optional(flag) };
/** Checks a set. Throws FieldError. */
export function checkSet(spec: unknown): void {
  checkNamed("set", KEPT_SET, "set", spec);
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

/** Checks an object whose field `key` names it in errors. */
function checkNamed(what: string, fields: Fields, key: string, given: unknown): void {
  const own = isObject(given) ? given[key] : undefined;
  check(record(fields, `an object that describes a ${what}`), typeof own === "string" ? `${what} ${own}` : what, given);
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
