/** The statement that refers to a named object. Pure. */
import { loadSetKey } from "./keys.js";
import { type Lowered, type LowerContext, lowered } from "./lowered.js";
import { checkName } from "../bytes/names-and-comments.js";
import { kindOfMap } from "../language/object-kinds.js";
import type { Action } from "../language/rule.js";
import { OBJECT_TYPES } from "../language/vocabulary.js";

type ObjectAction = Extract<Action, { action: "object" }>;

/** A reference to an object: by its name, or by the map that holds it for the fields. */
export function referToObject({ kind, name: object, key, map }: ObjectAction, context: LowerContext): Lowered {
  if (object !== undefined && key === undefined && map === undefined) {
    checkName(kind, object);
    return lowered({ type: "objref", immType: OBJECT_TYPES[kind], immName: object });
  }
  if (object !== undefined || key === undefined || map === undefined)
    throw new RangeError(`${kind}: an object action needs a name, or a key and a map`);
  const spec = context.setSpec?.(map);
  if (spec !== undefined && kindOfMap(spec) !== kind)
    throw new RangeError(`${map} is not a map of objects of kind ${kind}`);
  const { exprs } = loadSetKey(context, key, map);
  // The map may not be declared yet, but the text needs the kind.
  const kindOfText = context.isForText === true ? { immType: OBJECT_TYPES[kind] } : {};
  return lowered(...exprs, { type: "objref", setSreg: 1, setName: map, ...kindOfText });
}
