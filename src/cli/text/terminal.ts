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
  // Blanks in front of words, such as between columns, stay.
  const [first = "", ...words] = text.match(/ *[^ ]+/g) ?? [];
  let line = first;
  for (const word of words) {
    if (line.length + word.length <= width) line += word;
    else {
      lines.push(line);
      line = `${" ".repeat(indent)}${word.trimStart()}`;
    }
  }
  return [...lines, line];
}

/** Wraps each line of a text that is longer than the terminal is wide, below the line's last column. */
export function fitted(text: string, width = terminalWidth()): string {
  if (width === undefined) return text;
  const lines = text.split("\n").flatMap((line) => {
    const start = /^(?:.*\S {2,}| *)(?=\S)/.exec(line)?.[0].length ?? 0;
    return wrap(line, start > width / 2 ? 4 : start, width);
  });
  return lines.join("\n");
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
