/** "1 packet", "2 packets". @param many for every count but 1; default: `one` with an "s". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** The first few words, and the number of the others: "a, b and 7 more". */
export function someOf(words: readonly string[], most = 5): string {
  const more = words.length - most;
  return words.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
