import type { Fields, RecordOf } from "../../base/shape.js";
import { Hook } from "../kernel/constants.js";
import type { BaseChain, Family } from "../kernel/kernel.js";
import { FieldError } from "../language/fields/field-error.js";
import type { Lowered, LowerContext } from "../lowering/lowered.js";

/** A kind of action. */
export interface ActionKind<F extends Fields = Fields> {
  /** The keys of its statements besides `action`. */
  readonly fields: F;
  /** Turns a checked statement into expressions. Conditions that it needs first go to `context.pieces`. Throws FieldError. */
  lower(action: RecordOf<F>, context: LowerContext): Lowered;
  /** The families whose packets it can match. Absent: all. */
  readonly families?: readonly Family[];
  /** The hooks at which the kernel accepts it and it has an effect, and "nat" if only in chains of this type. Absent: all. */
  readonly at?: Place;
}

type Place = readonly ("nat" | keyof typeof Hook)[];

/** Throws FieldError if this base chain cannot have the action. */
export function checkPlace(at: Place, { type, hook }: BaseChain, action: string): void {
  const hooks = at.filter((one) => one !== "nat");
  if ((hooks.length === at.length || type === "nat") && hooks.some((name) => Hook[name] === hook)) return;
  const chains = hooks.length === at.length ? "base chains" : "base chains of type nat";
  throw new FieldError("action", `an action of ${chains} at ${hooks.join(" or ")}`, action);
}

/** The families whose connections can be rewritten, and whose packets can pass to other sockets and around hooks. */
export const INTERNET: readonly Family[] = ["ip", "ip6", "inet"];
/** The families with connection tracking. */
export const TRACKED: readonly Family[] = [...INTERNET, "bridge"];

export function kind<F extends Fields>(
  fields: F,
  lower: ActionKind<F>["lower"],
  families?: readonly Family[],
  at?: Place,
): ActionKind<F> {
  return { fields, lower, ...(families && { families }), ...(at && { at }) };
}
