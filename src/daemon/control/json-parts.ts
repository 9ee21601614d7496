/**
 * Writes answers as JSON in pieces, and yields to the event loop in between. 10,000 services as one text would block it for 30 ms.
 */
import { TakingTurns } from "../../base/time-slice.js";

/**
 * A list whose items are created while it is sent. All together, they would use memory that the next garbage collection must scan.
 */
export class PiecewiseList {
  /**
   * @param head the fields other than the items.
   * @param pieces batches of items, each of which takes a few ms to create and write.
   */
  constructor(
    readonly head: object,
    readonly pieces: AsyncIterable<readonly unknown[]>,
  ) {}
}

/** Shared by all lists of the process, because each blocks the event loop for a few ms per turn. */
const turns = new TakingTurns();

/**
 * Yields the JSON as one text, or as many texts for a list. Each of these except the last ends a line, so that a reader can start early.
 */
export async function* jsonParts(body: unknown): AsyncGenerator<string> {
  if (!(body instanceof PiecewiseList)) return yield JSON.stringify(body);
  const { head, pieces } = body;
  const begin = JSON.stringify(head).slice(0, -1);
  yield `${begin}${begin === "{" ? "" : ","}"items":[\n`;
  let separator = "";
  for await (const text of itemTexts(pieces)) {
    yield `${separator}${text.slice(1, -1)}\n`;
    separator = ",";
  }
  yield "]}";
}

/** Yields each piece that is not empty as a JSON array. */
export async function* itemTexts(pieces: AsyncIterable<readonly unknown[]>): AsyncGenerator<string> {
  const iterator = pieces[Symbol.asyncIterator]();
  for (;;) {
    const text = await turns.run(async () => {
      const { done = false, value } = await iterator.next();
      return done ? undefined : JSON.stringify(value);
    });
    if (text === undefined) return;
    if (text !== "[]") yield text;
  }
}
