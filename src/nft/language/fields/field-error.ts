import { counted } from "../../../base/counted.js";
import type { Shape } from "../../../base/shape.js";

/** A value that is invalid for its field, or an unknown key. Nothing has changed. */
export class FieldError extends TypeError {
  override readonly name = "FieldError";
  constructor(
    /** For example "set services, key[2] (inet_service)". */
    readonly field: string,
    /** For example "a port from 0 to 65535". */
    readonly expected: string,
    readonly value: unknown,
    /** The valid name that was probably meant. */
    readonly nearest?: string,
  ) {
    const hint = nearest === undefined ? "" : `; did you mean ${JSON.stringify(nearest)}?`;
    super(`${field}: expected ${expected}, found ${display(value)}${hint}`);
  }
}

/** Throws FieldError for the first problem of the value, which the error calls `place`. */
export function check(shape: Shape<unknown>, place: string, given: unknown): void {
  const problem = shape.find(place, given);
  if (problem !== undefined) throw new FieldError(problem.path, problem.expected, problem.value, problem.nearest);
}

/** Runs `work`. The FieldErrors that it throws name their fields from this place on. */
export function within<T>(place: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    const { field, expected, value, nearest } = error;
    const isJoined = /^($|\[|, )/.test(field);
    throw new FieldError(isJoined ? `${place}${field}` : `${place}, ${field}`, expected, value, nearest);
  }
}

/** Maximum length of a list in an error. */
const MOST_SHOWN = 8;

function display(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (value instanceof Uint8Array) return counted(value.length, "byte");
  if (Array.isArray(value)) return value.length > MOST_SHOWN ? "a list" : `[${value.map(display).join(", ")}]`;
  if (typeof value === "object" && value !== null) return displayObject(value);
  return typeof value === "function" ? "a function" : String(value);
}

function displayObject(value: object): string {
  try {
    return JSON.stringify(value) ?? "an object";
  } catch {
    return "an object";
  }
}
