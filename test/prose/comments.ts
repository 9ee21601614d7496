/** A string, a regular expression's or a template's text is no comment; a comment's text is group 2 or 3. */
const TOKENS =
  /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(?<=^|[\s;{}(,[])\/\/([^\n]*)|\/\*([\s\S]*?)\*\/|[^\n]/gm;

/**
 * The comments of a TypeScript or C++ source as Markdown. Every other line is empty, so that line numbers stay. Consecutive comment lines are one
 * paragraph.
 */
export function commentsOf(source: string): string {
  const text = source.replaceAll(TOKENS, (_, string?: string, line?: string, block?: string) => {
    if (string !== undefined) return string.replaceAll(/[^\n]/g, "");
    if (block !== undefined) return block.replace(/^\*/, "").replaceAll(/^[ \t]*\*(?: |$)/gm, "");
    // Directives of tools are no prose.
    return line === undefined || /^\s*(?:oxlint|prettier|NOLINT|@ts-|biome)/.test(line) ? "" : line.replace(/^\s/, "");
  });
  const lines = source.split("\n");
  return text
    .split("\n")
    .map((line, i) => {
      // Indented lines and lines with columns are diagrams and command lines.
      if (/^ {3,}\S|\S {3,}\S|^--/.test(line)) return "";
      const prose = line.replace(/^ /, "");
      // A comment behind code stands alone: an item of a list.
      return prose === "" || /^\s*(?:\/[/*]|\*)/.test(lines[i]) ? prose : `- ${prose}`;
    })
    .join("\n");
}
