import type { VariantOf } from "../../base/shape.js";
import { ENDINGS } from "./endings.js";
import type { ActionKind } from "./kind.js";
import { LIMITS } from "./limits.js";
import { NAT } from "./nat.js";
import { WRITES } from "./set-field.js";
import { LOOKUPS } from "./set-lookups.js";
import { RAW } from "./raw.js";

/** Every kind of action, by `action`. */
export const ACTIONS = { ...ENDINGS, ...LIMITS, ...WRITES, ...LOOKUPS, ...NAT, ...RAW };
type Kinds = typeof ACTIONS;

/** The effect of a rule. */
export type Action = VariantOf<"action", { readonly [K in keyof Kinds]: Kinds[K]["fields"] }>;

/** Returns the kind of an action. */
export function kindOf({ action }: Action): ActionKind {
  return ACTIONS[action];
}
