import type { Verdict } from "../kernel/kernel.js";
import type { ObjectName } from "../language/object-kinds.js";
import { parseVerdict, VERDICT, verdictText } from "../language/verdicts.js";
import * as vocabulary from "../language/vocabulary.js";
import type { ElementSet } from "../elements/element-set.js";
import type { VerdictRegistry } from "../elements/verdict-registry.js";
import { check } from "../language/fields/field-error.js";
import { DataMap, type ElementsOf, NetworkSet, ObjectMap, PlainSet, RangeSet, VerdictMap } from "./elements.js";
import { DynamicMap, DynamicSet, type KernelTable } from "./filled-sets.js";
import type { SetSpec } from "./set-spec.js";

/** Returns a handle of the declared set. */
export function setHandle<const Spec extends SetSpec>(
  spec: Spec,
  elements: ElementSet,
  verdicts: VerdictRegistry,
  table: KernelTable,
): ElementsOf<Spec>;
// The cases are those of `ElementsOf`.
export function setHandle(spec: SetSpec, elements: ElementSet, verdicts: VerdictRegistry, table: KernelTable): object {
  const { data, key } = spec;
  if (spec.dynamic === true)
    return Array.isArray(data) ? new DynamicMap(elements, table) : new DynamicSet(elements, table);
  if (data === undefined) {
    if (spec.interval !== true) return new PlainSet(elements);
    return new (key.length === 1 && key[0].endsWith("_addr") ? NetworkSet : RangeSet)(elements);
  }
  const where = `map ${spec.set}, data`;
  if (data === "verdict") {
    return new VerdictMap(elements, {
      id: (text) => {
        check(VERDICT, where, text);
        return verdicts.id(parseVerdict(text));
      },
      target: (number) => verdictText(verdicts.get(number) as Verdict),
    });
  }
  if (!("object" in data)) return new DataMap(elements);
  const kind = data.object;
  return new ObjectMap(elements, {
    id: (object) => {
      check(vocabulary.name, where, object);
      return verdicts.id({ kind, object });
    },
    target: (number) => (verdicts.get(number) as ObjectName).object,
  });
}
