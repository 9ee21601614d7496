/** "1 packet", "2 packets". @param many what follows any other count; default: `one` with an "s". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
