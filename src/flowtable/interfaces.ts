/** Selects the interfaces of a flowtable: names, or prefixes of names with a trailing `*`. Pure. */

/**
 * A name that dev_valid_name accepts, or a shorter prefix and `*`. A comma separates names here. nft prints no quotation mark in a name, and
 * reads `@` as the beginning of a set's name.
 */
const PATTERN = /^(?!\.{1,2}$|@)([^\s/:,*"]{1,15}|[^\s/:,*"]{1,14}\*)$/;

/** Parses the flag's value. Returns undefined if it contains no name, or an impossible one. */
export function parseInterfaces(text: string): readonly string[] | undefined {
  const patterns = text.split(",").map((pattern) => pattern.trim());
  return patterns.every((pattern) => PATTERN.test(pattern)) ? [...new Set(patterns)] : undefined;
}

/** The loopback interface is never included: nothing is forwarded through it. */
export function isMeant(name: string, patterns: readonly string[]): boolean {
  if (name === "lo") return false;
  return patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
