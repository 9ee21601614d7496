/**
 * Which of many are refused, when a refusal does not say. Halves are written for real and not rehearsed: a batch that the kernel checks
 * and rolls back costs what a refused one does (both are rolled back), while a half that passes is in force and need not be sent again. For k
 * bad ones among n that is some k·log2(n/k) refused transactions, and all others are in force when it ends.
 */
export interface Trial<Item> {
  /** Makes these desired. */
  forward(items: readonly Item[]): Promise<void>;
  /** Makes these as they were before. */
  back(items: readonly Item[]): Promise<void>;
  /** Writes what is desired; false: refused. `items` came forward since the last write that was not. Throws: not a refusal. */
  works(items: readonly Item[]): Promise<boolean>;
}

export interface SearchResult<Item> {
  /** Refused one by one. They are back. */
  readonly refused: readonly Item[];
  /** Not in force, and not to blame as far as is known. They are desired. */
  readonly untried: readonly Item[];
}

/** When all that is tried is refused, more than this many of them are not to blame. */
const MOST_TO_BLAME_ALONE = 2;

/** All items together have been refused. */
export async function findRefused<Item>(items: readonly Item[], trial: Trial<Item>): Promise<SearchResult<Item>> {
  const refused: Item[] = [];
  let open: (readonly Item[])[] = [];
  let passed = 0;
  let failed = 0;
  const most = 2 * Math.ceil(Math.log2(items.length + 1)) + 8;
  /** None is to blame. */
  const giveUp = async (): Promise<SearchResult<Item>> => {
    const untried = [...refused, ...open.flat()];
    await trial.forward(untried);
    return { refused: [], untried };
  };
  open.push(items);
  try {
    await trial.back(items);
    // Without any of them: if that is refused too, it is not about them.
    if (!(await trial.works([]))) return await giveUp();
    if (items.length > 1) open = halves(items);
    for (;;) {
      const list = open.at(-1);
      if (list === undefined) break;
      if (failed > most + 4 * passed) {
        if (passed === 0) return await giveUp();
        const untried = open.flat();
        await trial.forward(untried);
        return { refused, untried };
      }
      await trial.forward(list);
      const works = await trial.works(list);
      if (!works) await trial.back(list);
      open.pop();
      if (works) passed++;
      else {
        failed++;
        if (list.length === 1) refused.push(list[0]);
        else open.push(...halves(list));
      }
    }
  } catch (error) {
    await trial.forward([...refused, ...open.flat()]);
    throw error;
  }
  if (passed === 0 && refused.length > MOST_TO_BLAME_ALONE) return giveUp();
  return { refused, untried: [] };
}

/** The first half comes last: it is taken from the end. */
function halves<Item>(items: readonly Item[]): (readonly Item[])[] {
  const middle = Math.ceil(items.length / 2);
  return [items.slice(middle), items.slice(0, middle)].filter((half) => half.length > 0);
}
