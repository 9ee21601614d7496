/** The reader's terminal. */

/**
 * Returns the width in characters that lines should not exceed: the terminal's, or for other outputs the one in `COLUMNS`. Returns undefined
 * if the width does not matter, as in a pipe.
 */
export function terminalWidth(): number | undefined {
  if (process.stdout.isTTY && process.stdout.columns > 0) return process.stdout.columns;
  const columns = Number(process.env["COLUMNS"]);
  return Number.isInteger(columns) && columns > 0 ? columns : undefined;
}

/** Breaks a text between words. Lines after the first are indented. Words longer than a line stay whole. */
export function wrap(text: string, indent: number, width = terminalWidth()): string[] {
  if (width === undefined || text.length <= width) return [text];
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line.trim() !== "" && line.length + 1 + word.length > width) {
      lines.push(line.trimEnd());
      line = `${" ".repeat(indent)}${word}`;
    } else line += lines.length === 0 && line === "" ? word : ` ${word}`;
  }
  return [...lines, line];
}

/** Formats facts as "name  text", with the texts in one column, and wraps them. Facts without a text are omitted. */
export function factLines(
  facts: readonly (readonly [name: string, text: string | undefined])[],
  indent = "",
): string[] {
  const known = facts.filter((fact): fact is readonly [string, string] => fact[1] !== undefined);
  const column = Math.max(0, ...known.map(([name]) => name.length)) + 2;
  return known.flatMap(([name, text]) => wrap(`${indent}${name.padEnd(column)}${text}`, indent.length + column));
}
