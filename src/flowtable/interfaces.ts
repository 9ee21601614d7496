/** Which interfaces a flowtable is to have: names, or beginnings of names with a trailing `*`. Pure. */

/** IFNAMSIZ - 1 bytes, of what dev_valid_name takes; what names are told apart by here is none of it. */
const PATTERN = /^(?!\.{1,2}$)[^\s/:,*]{1,15}\*?$/;

/** Of the flag's value; undefined: it names none, or one that cannot be. */
export function parseInterfaces(text: string): readonly string[] | undefined {
  const patterns = text.split(",").map((pattern) => pattern.trim());
  return patterns.every((pattern) => PATTERN.test(pattern)) ? [...new Set(patterns)] : undefined;
}

/** The loopback interface is never meant: nothing is forwarded through it. */
export function isMeant(name: string, patterns: readonly string[]): boolean {
  if (name === "lo") return false;
  return patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
