/** A table's sets, chains and elements as nft's own text (>= 1.0.6). Pure. */
import type { BaseChain, Family, TableRef } from "../kernel/kernel.js";
import { readU32 } from "../bytes/bytes.js";
import type { TrackedElements } from "../elements/tracked-elements.js";
import { type VerdictRegistry, targetText } from "../elements/verdict-registry.js";
import type { DesiredState } from "./desired-state.js";
import { durationText } from "../printing/value-text.js";
import { hooksOf, policyOf } from "../language/hooks-and-priorities.js";
import { exampleOf, type FieldType } from "../language/fields/field-types.js";
import type { StatementOptions } from "../lowering/lowered.js";
import { kindOfMap } from "../language/object-kinds.js";
import { renderObject } from "../statements/object-definitions.js";
import { printKey, printPacked } from "../elements/print-key.js";
import { dataFields, hasTargets, sizeFor } from "../language/schema.js";
import { printRule } from "../statements/lower-rule.js";
import type { SetSpec } from "../language/set-spec.js";
import type { NumberedChain } from "./diff.js";

/**
 * Renders the table as text that `nft -f` (>= 1.0.6) loads in place of the existing one. Sets, chains and elements have a stable order, so two
 * renderings of the same state are identical.
 */
export function renderTable(
  { family, table }: TableRef,
  comment: string | undefined,
  {
    sets,
    chains,
    objects,
    verdicts,
    setSpec,
  }: Pick<DesiredState, "sets" | "chains" | "objects" | "verdicts" | "setSpec">,
): string {
  const name = `${family} ${table}`;
  const lines = [`add table ${name}`, `delete table ${name}`, `table ${name} {`];
  if (comment !== undefined) lines.push(`\tcomment "${comment}"`, "");
  for (const object of objects.values()) lines.push(...renderObject(object, family), "");
  for (const elements of sets.values()) lines.push(...renderSet(elements, verdicts), "");
  for (const { spec } of chains.values()) lines.push(...renderChain(spec, { family, setSpec }), "");
  if (lines.at(-1) === "") lines.pop();
  lines.push("}");
  return `${lines.join("\n")}\n`;
}

function renderSet(set: TrackedElements, verdicts: VerdictRegistry): string[] {
  const { spec } = set;
  const size = sizeFor(spec, set.size);
  const flags = [
    spec.interval === true ? "interval" : "",
    spec.dynamic === true ? "dynamic" : "",
    spec.timeoutMs === undefined ? "" : "timeout",
  ].filter((flag) => flag !== "");
  const lines = [`\t${spec.data === undefined ? "set" : "map"} ${spec.set} {`, `\t\t${printTypes(spec)}`];
  if (size !== undefined) lines.push(`\t\tsize ${size}`);
  if (flags.length > 0) lines.push(`\t\tflags ${flags.join(",")}`);
  if (spec.timeoutMs !== undefined && spec.timeoutMs > 0)
    lines.push(`\t\ttimeout ${durationText(BigInt(spec.timeoutMs))}`);
  if (spec.counters !== undefined) lines.push("\t\tcounter");
  if (spec.comment !== undefined) lines.push(`\t\tcomment "${spec.comment}"`);
  const elements = renderElements(set, verdicts);
  if (elements.length > 0) lines.push(`\t\telements = { ${elements.join(",\n\t\t\t     ")} }`);
  return [...lines, "\t}"];
}

function renderElements(set: TrackedElements, verdicts: VerdictRegistry): string[] {
  const { spec } = set;
  const elements: { readonly key: Uint8Array; readonly data: Uint8Array }[] = [];
  set.forEach((key, data) => elements.push({ key: key.slice(), data: data.slice() }));
  return elements
    .toSorted((a, b) => Buffer.compare(a.key, b.key))
    .map(({ key, data }) => {
      const text = `${printKey(spec, key)}${printTimes(set, key)}`;
      if (spec.data === undefined) return text;
      const value = hasTargets(spec) ? targetText(verdicts.get(readU32(data, 0))) : printPacked(dataFields(spec), data);
      return `${text} : ${value}`;
    });
}

/** Rounds to whole seconds: the time left keeps running. */
function printTimes(set: TrackedElements, key: Uint8Array): string {
  const { spec } = set;
  if (spec.timeoutMs === undefined) return "";
  const [timeoutMs, leftMs] = set.times(key);
  if (timeoutMs === 0) return "";
  const own = timeoutMs === spec.timeoutMs ? "" : ` timeout ${durationText(BigInt(timeoutMs))}`;
  const left = Math.min(timeoutMs, Math.ceil(leftMs / 1000) * 1000);
  return `${own} expires ${durationText(BigInt(left))}`;
}

function renderChain(chain: NumberedChain, options: StatementOptions): string[] {
  const lines = [`\tchain ${chain.chain} {`];
  if (chain.comment !== undefined) lines.push(`\t\tcomment "${chain.comment}"`);
  if (chain.base !== undefined)
    lines.push(`\t\t${printHook(chain.base, options.family)}; policy ${policyOf(chain.base)};`);
  for (const rule of chain.rules) lines.push(`\t\t${printRule(rule, options)}`);
  return [...lines, "\t}"];
}

/**
 * Returns `typeof …` if one of the fields is an index, because nft refuses a plain mark in place of numgen. The same for `ct helper` and the like, which nft
 * does not read after `type`. Otherwise `type …`.
 */
function printTypes(spec: SetSpec): string {
  const data = dataFields(spec);
  const byExample = [...spec.key, ...data].includes("index") || kindOfMap(spec)?.startsWith("ct ") === true;
  const text = (fields: readonly FieldType[]): string =>
    fields.map((field) => (byExample ? exampleOf(field) : field)).join(" . ");
  const value = spec.data === "verdict" ? "verdict" : (kindOfMap(spec) ?? text(data));
  return `${byExample ? "typeof" : "type"} ${text(spec.key)}${value === "" ? "" : ` : ${value}`}`;
}

function printHook({ type, hook, priority, devices = [] }: BaseChain, family: Family): string {
  const name = Object.entries(hooksOf(family)).find(([, number]) => number === hook)?.[0] ?? hook;
  const on = devices.length === 0 ? "" : ` devices = { ${devices.toSorted().join(", ")} }`;
  return `type ${type} hook ${name}${on} priority ${priority}`;
}
