/** A command line written for Go's pflag, so that commander understands it. */
import type { FlagType } from "./kube-proxy-flags.js";

/**
 * Rewrites the flags ahead of the first sub-command: `--flag value` becomes `--flag=value`, `--bool` becomes
 * `--bool=true` (a boolean never takes the next word), `-v4`, `-v=4` and `-v 4` become `--v=4`, underscores in names
 * become hyphens (component-base's WordSepNormalizeFunc), and empty words are left out, as kube-proxy leaves them.
 * @param typeOf type of the flag of that name; undefined when there is none.
 * @returns the words, and the flags ahead of the first sub-command that there are not, without their values.
 */
export function fromGo(
  argv: readonly string[],
  typeOf: (name: string) => FlagType | undefined,
): { readonly words: readonly string[]; readonly unknown: readonly string[] } {
  const words: string[] = [];
  const unknown: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] ?? "";
    if (word === "") continue;
    if (!word.startsWith("-") || word === "-" || word === "--") return { words: [...words, ...argv.slice(i)], unknown };
    const [, written, value] = /^--([^=]+)(=.*)?$/s.exec(longVerbosity(word)) ?? [];
    const name = written?.replaceAll("_", "-");
    const type = name === undefined ? undefined : typeOf(name);
    if (name === undefined || type === undefined) {
      if (name !== undefined && name !== "help") unknown.push(`--${name}`);
      words.push(word);
    } else if (value !== undefined) {
      words.push(`--${name}${value}`);
    } else if (type === "bool" || type === "version") {
      words.push(`--${name}=true`);
    } else if (i + 1 < argv.length) {
      words.push(`--${name}=${argv[++i] ?? ""}`);
    } else {
      words.push(`--${name}`);
    }
  }
  return { words, unknown };
}

/** `-v`, the only flag with a short form that takes a value, in its long form. */
function longVerbosity(word: string): string {
  const value = /^-v=?(.*)$/s.exec(word)?.[1];
  if (value === undefined) return word;
  return word === "-v" ? "--v" : `--v=${value}`;
}
