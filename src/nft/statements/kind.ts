import type { Fields, RecordOf } from "../../base/shape.js";
import type { Family } from "../kernel/kernel.js";
import type { Lowered, LowerContext } from "../lowering/lowered.js";

/** A kind of action. */
export interface ActionKind<F extends Fields = Fields> {
  /** The keys of its statements besides `action`. */
  readonly fields: F;
  /** Turns a checked statement into expressions. Conditions that it needs first go to `context.pieces`. Throws FieldError. */
  lower(action: RecordOf<F>, context: LowerContext): Lowered;
  /** The families whose packets it can match. Absent: all. */
  readonly families?: readonly Family[];
}

/** The families whose connections can be rewritten, and whose packets can pass to other sockets and around hooks. */
export const INTERNET: readonly Family[] = ["ip", "ip6", "inet"];
/** The families with connection tracking. */
export const TRACKED: readonly Family[] = [...INTERNET, "bridge"];

export function kind<F extends Fields>(
  fields: F,
  lower: ActionKind<F>["lower"],
  families?: readonly Family[],
): ActionKind<F> {
  return families === undefined ? { fields, lower } : { fields, lower, families };
}
