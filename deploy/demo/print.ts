/** Prints the demo's headings and bars, in colour only on a terminal. */
const colour = process.stdout.isTTY && process.env["NO_COLOR"] === undefined;
const WIDTH = 36;

function paint(code: number, text: string): string {
  return colour ? `\u001B[${code}m${text}\u001B[0m` : text;
}

export function heading(text: string): void {
  console.log(`\n${paint(1, text)}`);
}

export function say(text: string): void {
  console.log(`  ${text}`);
}

/** Draws a distribution over pods, one bar each, sorted by name. */
export function bars(counts: Readonly<Record<string, number>>): void {
  const most = Math.max(1, ...Object.values(counts));
  for (const [name, count] of Object.entries(counts).toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const bar = "█".repeat(Math.max(1, Math.round((count / most) * WIDTH)));
    console.log(`    ${name.padEnd(7)} ${paint(36, bar.padEnd(WIDTH))} ${String(count).padStart(4)}`);
  }
}

/** Formats a count that should be zero. */
export function failures(count: number): string {
  return count === 0 ? paint(32, "0 failed") : paint(31, `${count} failed`);
}
