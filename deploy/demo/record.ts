/**
 * Records `npm run demo` as an SVG image of a terminal that scrolls in real time: docs/images/demo.svg.
 *
 *   node deploy/demo/record.ts FILE
 *
 * Needs `script` from util-linux, because the demo uses colours only on a terminal.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

interface Line {
  readonly text: string;
  /** Seconds; the origin is arbitrary. */
  readonly at: number;
}

/** Number of visible rows. */
const ROWS = 30;
const COLUMNS = 122;
const ROW_HEIGHT = 17;
const COLUMN_WIDTH = 7.2;
const MARGIN = 12;
/** Longest pause between two lines, seconds. The pauses while requests are sent are shortened to it. */
const LONGEST_PAUSE = 0.8;
/** Time to read the first and the last screen, and each section before the next heading, seconds. */
const READING = 4;
/** SGR codes that deploy/demo/print.ts uses. */
const CLASSES: Readonly<Record<string, string>> = { "1": "b", "31": "r", "32": "g", "36": "c" };
const HEADING = "\u001B[1m";
const LAST = `${HEADING}Done`;
const STYLE = [
  "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6deeb;white-space:pre}",
  ".b{font-weight:bold;fill:#fff}.r{fill:#ff6b6b}.g{fill:#7bd88f}.c{fill:#5ad4e6}",
  "@media(prefers-reduced-motion:reduce){*{animation:none!important}}",
].join("");

const [file] = process.argv.slice(2);
if (file === undefined) throw new Error("usage: node deploy/demo/record.ts FILE");
writeFileSync(file, drawing(paced(await record())));

/** Records the demo's output from its first heading on. Rejects if the demo fails. */
async function record(): Promise<Line[]> {
  const child = spawn("script", ["-qefc", "npm run demo", "/dev/null"], { stdio: ["ignore", "pipe", "inherit"] });
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const lines: Line[] = [];
  for await (const text of createInterface({ input: child.stdout })) {
    const isBefore = lines.length === 0 && !text.startsWith(HEADING);
    if (!isBefore && !lines.at(-1)?.text.startsWith(LAST)) lines.push({ text: shortened(text), at: now() });
  }
  const code = await exited;
  if (code !== 0) throw new Error(`the demo ended with ${code}`);
  return lines;
}

/** Removes the kernel's local version, which is specific to this machine. */
function shortened(text: string): string {
  return text.trimEnd().replace(/(Linux \d+\.\d+\.\d+)-\S+/, "$1");
}

function now(): number {
  return performance.now() / 1000;
}

/** Adds pauses that a reader can follow. The first screen is visible from the start. */
function paced(lines: readonly Line[]): Line[] {
  let at = 0;
  return lines.map(({ text, at: real }, i) => {
    const pause = Math.min(real - (lines[i - 1]?.at ?? real), LONGEST_PAUSE);
    if (i === ROWS || (i > ROWS && text.startsWith(HEADING))) at += READING;
    else if (i > ROWS) at += pause;
    return { text, at };
  });
}

function drawing(lines: readonly Line[]): string {
  const width = Math.ceil(COLUMNS * COLUMN_WIDTH + 2 * MARGIN);
  const height = ROWS * ROW_HEIGHT + 2 * MARGIN;
  const end = (lines.at(-1)?.at ?? 0) + READING;
  const rows = lines.map(({ text }, i) => {
    return `<text x="${MARGIN}" y="${MARGIN + (i + 0.75) * ROW_HEIGHT}">${coloured(text)}</text>`;
  });
  const scroll = lines.slice(ROWS).map(({ at }, i) => {
    return `${((at / end) * 100).toFixed(2)}%{transform:translateY(${-(i + 1) * ROW_HEIGHT}px)}`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    "<title>The output of npm run demo</title>",
    `<style>${STYLE}.m{animation:m ${end.toFixed(1)}s step-end infinite}@keyframes m{${scroll.join("")}}</style>`,
    `<clipPath id="v"><rect y="${MARGIN}" width="${width}" height="${height - 2 * MARGIN}"/></clipPath>`,
    `<rect width="${width}" height="${height}" rx="6" fill="#16181d"/>`,
    '<g clip-path="url(#v)"><g class="m">',
    ...rows,
    "</g></g></svg>",
    "",
  ].join("\n");
}

/** Converts the colours of a line to markup. */
function coloured(line: string): string {
  return line
    .split("\u001B[")
    .map((part, i) => {
      const [, code = "0", text = part] = i === 0 ? [] : (/^(\d+)m(.*)$/s.exec(part) ?? []);
      const name = CLASSES[code];
      return name === undefined || text === "" ? escaped(text) : `<tspan class="${name}">${escaped(text)}</tspan>`;
    })
    .join("");
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
