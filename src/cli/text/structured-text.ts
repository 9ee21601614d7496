/** Returns the text of a value for programs. */
export async function structuredText(value: unknown, format: "json" | "yaml"): Promise<string> {
  return format === "json" ? jsonText(value) : (await import("yaml")).stringify(value);
}

export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
