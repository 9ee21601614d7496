import { LATER } from "./later.ts";
import { PARITY, type ParityRow } from "./list.ts";

/** Position of a table in docs/parity.md, between two marker lines. */
interface Place {
  readonly begin: string;
  readonly end: string;
  readonly make: () => string;
}

const PLACES: readonly Place[] = [
  {
    begin: "<!-- made by test/parity/write.ts from test/parity/list.ts -->",
    end: "<!-- end of what is made -->",
    make: parityTable,
  },
  {
    begin: "<!-- made by test/parity/write.ts from test/parity/later.ts -->",
    end: "<!-- end of what is made of later releases -->",
    make: laterTable,
  },
];

/** Markdown: one row per entry, names formatted as code. */
function parityTable(): string {
  const rows = PARITY.map((row) => `| ${namesOf(row)} | ${row.ours} | ${row.note ?? ""} |`);
  return ["| flag, field or metric of kube-proxy 1.36 | here | notes |", "|---|---|---|", ...rows].join("\n");
}

function laterTable(): string {
  const rows = LATER.map(({ release, what, source, here }) => `| ${release} | ${what} | ${source} | ${here} |`);
  return ["| release | kube-proxy | source | here |", "|---|---|---|---|", ...rows].join("\n");
}

function namesOf({ flags = [], fields = [], metrics = [] }: ParityRow): string {
  const names = [...flags.map((flag) => (flag === "v" ? "-v" : `--${flag}`)), ...fields, ...metrics];
  return names.map((name) => `\`${name}\``).join(" ");
}

/** Returns the text with the current tables. Throws if a marker is missing. */
export function withTables(text: string): string {
  return PLACES.reduce((so, { begin, end, make }) => {
    const from = so.indexOf(begin);
    const to = so.indexOf(end);
    if (from < 0 || to < from) throw new Error(`docs/parity.md has no ${begin} before ${end}`);
    return `${so.slice(0, from + begin.length)}\n${make()}\n${so.slice(to)}`;
  }, text);
}
