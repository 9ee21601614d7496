/** Aligned columns, two spaces apart, as kubectl prints them. */
const GAP = "  ";

/** @param rows cells; every row has as many as the first. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map(() => 0);
  for (const cells of rows) {
    for (let i = 0; i < cells.length; i++) if (cells[i].length > widths[i]) widths[i] = cells[i].length;
  }
  return rows.map((cells) => {
    let line = "";
    for (let i = 0; i < cells.length; i++) line += (i === 0 ? "" : GAP) + cells[i].padEnd(widths[i] ?? 0);
    return line.trimEnd();
  });
}
