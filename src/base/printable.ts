/**
 * Makes foreign text (names, zones, reasons) safe to print. An escape sequence can rewrite a terminal's screen, a
 * bidirectional control can reorder a line, and a line feed can forge one. The API server checks names, but not a slice's
 * zone or its targetRef.name.
 */

/** Control and format characters, and Unicode's line and paragraph separators. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
/** Excludes tabs and line feeds. */
const UNSAFE_IN_LINES = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Escapes every control character as JSON does ("\u001b"), for one cell or line. Text without any is returned unchanged. */
export function printable(text: string): string {
  return text.replace(UNSAFE, escaped);
}

/** Like `printable`, but keeps line feeds and tabs. JSON keeps its meaning. */
export function printableLines(text: string): string {
  return text.replace(UNSAFE_IN_LINES, escaped);
}

function escaped(character: string): string {
  const short = SHORT[character];
  if (short !== undefined) return short;
  return Array.from({ length: character.length }, (_, i) => unit(character.charCodeAt(i))).join("");
}

function unit(code: number): string {
  return `\\u${code.toString(16).padStart(4, "0")}`;
}
