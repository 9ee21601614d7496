/**
 * Calls `work` for each item, for up to `most` items at the same time. Rejects with the first failure, and then starts
 * no other item.
 */
export async function sideBySide<T>(items: Iterable<T>, most: number, work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const next = async (): Promise<void> => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await work(item);
  };
  try {
    await Promise.all(Array.from({ length: most }, next));
  } finally {
    left.length = 0;
  }
}
