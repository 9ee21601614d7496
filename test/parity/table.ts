import { PARITY, type ParityRow } from "./list.ts";

/** docs/parity.md holds the table between these. */
export const BEGIN = "<!-- made by test/parity/write.ts from test/parity/list.ts -->";
export const END = "<!-- end of what is made -->";

/** Markdown: one row for each entry, names in code. */
export function parityTable(): string {
  const rows = PARITY.map((row) => `| ${namesOf(row)} | ${row.ours} | ${row.note ?? ""} |`);
  return ["| flag, field or metric of kube-proxy 1.36 | ours | |", "|---|---|---|", ...rows].join("\n");
}

function namesOf({ flags = [], fields = [], metrics = [] }: ParityRow): string {
  const names = [...flags.map((flag) => (flag === "v" ? "-v" : `--${flag}`)), ...fields, ...metrics];
  return names.map((name) => `\`${name}\``).join(" ");
}

/** What is between the marks; undefined when they are not there. */
export function tableIn(readme: string): string | undefined {
  const from = readme.indexOf(BEGIN);
  const to = readme.indexOf(END);
  return from < 0 || to < from ? undefined : readme.slice(from + BEGIN.length, to).trim();
}

/** The text with the table of now between the marks. Throws when there are none. */
export function withTable(readme: string): string {
  const from = readme.indexOf(BEGIN);
  const to = readme.indexOf(END);
  if (from < 0 || to < from) throw new Error(`docs/parity.md has no ${BEGIN} before ${END}`);
  return `${readme.slice(0, from + BEGIN.length)}\n${parityTable()}\n${readme.slice(to)}`;
}
