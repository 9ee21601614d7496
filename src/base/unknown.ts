/** Values and errors that may be anything. */

/** An object of which nothing more is known. */
export type Fields = Readonly<Record<string, unknown>>;

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Why something failed, in the error's own words. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Whether a call of the system failed because there is no such file. */
export function isNoEntry(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
