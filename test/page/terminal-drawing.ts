/** Draws a program's output as an SVG image of a terminal that scrolls in real time. */
import { stripVTControlCharacters } from "node:util";

export interface Line {
  /** With the SGR codes that deploy/demo/print.ts uses. */
  readonly text: string;
  /** Seconds; the origin is arbitrary. */
  readonly at: number;
}

/** Begins a heading of the demo: bold. */
export const HEADING = "\u001B[1m";

/** Number of visible rows. */
const ROWS = 30;
const ROW_HEIGHT = 17;
const COLUMN_WIDTH = 7.2;
const MARGIN = 12;
/** Longest pause between two lines, seconds. The pauses while requests are sent are shortened to it. */
const LONGEST_PAUSE = 0.8;
/** Time to read the first and the last screen, and each section before the next heading, seconds. */
const READING = 4;
/** The other codes end a colour. */
const CLASSES: Readonly<Record<string, string>> = { "1": "b", "31": "r", "32": "g", "36": "c" };
const STYLE = [
  "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6deeb;white-space:pre}",
  ".b{font-weight:bold;fill:#fff}.r{fill:#ff6b6b}.g{fill:#7bd88f}.c{fill:#5ad4e6}",
  "@media(prefers-reduced-motion:reduce){*{animation:none!important}}",
].join("");

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

/** Returns the image. `title` is for readers that do not see it. */
export function terminalDrawing(title: string, output: readonly Line[]): string {
  const lines = paced(output);
  const columns = Math.max(...lines.map(({ text }) => stripVTControlCharacters(text).length));
  const width = Math.ceil(columns * COLUMN_WIDTH + 2 * MARGIN);
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
    `<title>${escaped(title)}</title>`,
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
