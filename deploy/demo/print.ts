/** Prints the demo's headings and bars, in colour on a terminal. NO_COLOR and FORCE_COLOR change that. */
import { styleText } from "node:util";

const WIDTH = 36;

export function heading(text: string): void {
  console.log(`\n${styleText("bold", text)}`);
}

export function say(text: string): void {
  console.log(`  ${text}`);
}

/** Draws a distribution over pods, one bar each, sorted by name. */
export function bars(counts: Readonly<Record<string, number>>): void {
  const most = Math.max(1, ...Object.values(counts));
  for (const [name, count] of Object.entries(counts).toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const bar = "█".repeat(Math.max(1, Math.round((count / most) * WIDTH)));
    console.log(`    ${name.padEnd(7)} ${styleText("cyan", bar.padEnd(WIDTH))} ${String(count).padStart(4)}`);
  }
}

/** Formats a count that should be zero. */
export function failures(count: number): string {
  return count === 0 ? styleText("green", "0 failed") : styleText("red", `${count} failed`);
}
