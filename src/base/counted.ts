/** "1 packet", "2 packets". @param many for every count but 1; default: `one` with an "s". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
