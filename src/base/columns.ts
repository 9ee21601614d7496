/** Aligned columns, two spaces apart, as kubectl prints them. */
import { printable } from "./printable.js";

const GAP = "  ";

/** @param rows cells; all rows have the same number. Control characters in them are escaped. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const texts = rows.map((cells) => cells.map(printable));
  const widths = (texts[0] ?? []).map(() => 0);
  for (const cells of texts) {
    for (let i = 0; i < cells.length; i++) if (cells[i].length > widths[i]) widths[i] = cells[i].length;
  }
  return texts.map((cells) => {
    let line = "";
    for (let i = 0; i < cells.length; i++) line += (i === 0 ? "" : GAP) + cells[i].padEnd(widths[i] ?? 0);
    return line.trimEnd();
  });
}

/** Joins the lines, with a line feed after each. Control characters in them are escaped. */
export function linesText(lines: readonly string[]): string {
  return lines.map((line) => `${printable(line)}\n`).join("");
}
