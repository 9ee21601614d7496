/** The state of the fake kernel as text. It does not depend on time, handles or the order of additions. */
import {
  type ChainState,
  type ElementState,
  type NamespaceState,
  ObjectState,
  type SetState,
  tableId,
} from "./state/state.js";

/** Returns all tables, each with its chains, sets and objects. */
export function dumpText({ tables }: NamespaceState): string {
  return sorted(tables.values(), (table) => tableId(table.ref))
    .flatMap((table) => [
      `table ${tableId(table.ref)}${fields({ flags: table.flags || undefined, userdata: table.userdata })}`,
      ...sorted(table.sets.values(), ({ name }) => name).flatMap(setLines),
      ...sorted(table.objects.values(), ({ objType, name }) => `${objType} ${name}`).map(objectLine),
      ...[...table.flowtables].map(([name, devices]) => `  flowtable ${name}${fields({ devices: [...devices] })}`),
      ...sorted(table.chains.values(), ({ name }) => name).flatMap(chainLines),
    ])
    .map((line) => `${line}\n`)
    .join("");
}

function setLines({ name, info, elements }: SetState): string[] {
  const { set: _, ...rest } = info;
  return [`  set ${name}${fields(rest)}`, ...[...elements.values()].map(elementLine).toSorted()];
}

/** Like those of rules, a counter's counts are omitted. */
function objectLine({ name, data, userdata }: ObjectState): string {
  const { type, ...rest } = data;
  return `  ${type} ${name}${type === "counter" ? "" : fields(rest)}${fields({ userdata })}`;
}

function elementLine({ key, keyEnd, end, catchall, data, verdict, target, timeout, userdata }: ElementState): string {
  const hex = (text: string): string => Buffer.from(text, "latin1").toString("hex");
  const range = keyEnd === key ? undefined : hex(keyEnd);
  const object = target instanceof ObjectState ? target.name : undefined;
  const value = verdict ?? object ?? (data === "" ? undefined : hex(data));
  return `    element ${catchall ? "*" : hex(key)}${fields({ to: range, end: end || undefined, value, timeout, userdata })}`;
}

function chainLines({ name, base, flags, userdata, rules }: ChainState): string[] {
  return [
    `  chain ${name}${fields({ ...base, flags: flags || undefined, userdata })}`,
    ...rules.map((rule) => `    rule${fields({ userdata: rule.userdata })}${rule.exprs.map(exprText).join("")}`),
  ];
}

/** Counts are omitted, because packets change them in a real kernel. */
function exprText({ type, ...rest }: { readonly type: string }): string {
  return ` [ ${type}${type === "counter" ? "" : fields(rest)} ]`;
}

function fields(object: object): string {
  return Object.entries(object)
    .flatMap(([name, value]) => (value === undefined ? [] : ` ${name} ${valueText(value)}`))
    .join("");
}

function valueText(value: unknown): string {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex");
  if (Array.isArray(value)) return `[${value.map(valueText).join(",")}]`;
  if (typeof value === "object" && value !== null) return `{${fields(value)} }`;
  return String(value);
}

function sorted<T>(items: Iterable<T>, nameOf: (item: T) => string): T[] {
  return [...items].toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
}
