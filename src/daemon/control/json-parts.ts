/** Answers as JSON, in pieces between which the event loop gets its turns: 10,000 services as one text hold it for 30 ms. */
import { TakingTurns } from "../../base/time-slice.js";

/** A list whose items are made while it is sent: all at once they would be memory that the next collection has to look through. */
export class PiecewiseList {
  /**
   * @param head what is beside the items.
   * @param pieces items, as many at a time as take a few ms to make and to write.
   */
  constructor(
    readonly head: object,
    readonly pieces: AsyncIterable<readonly unknown[]>,
  ) {}
}

/** All lists of the process: each would hold the event loop for a few ms in each of its turns. */
const turns = new TakingTurns();

/** Items of a list that is there already which are written in one piece. */
const PIECE = 256;

/** One text; of a list many, each of which but the last ends a line, so that who reads it can begin before its end. */
export async function* jsonParts(body: unknown): AsyncGenerator<string> {
  if (body instanceof PiecewiseList) return yield* listParts(body.head, body.pieces);
  if (!isList(body)) return yield JSON.stringify(body);
  const { items, ...head } = body;
  yield* listParts(head, piecesOf(items));
}

function isList(body: unknown): body is { readonly items: readonly unknown[] } {
  return typeof body === "object" && body !== null && "items" in body && Array.isArray(body.items);
}

function* piecesOf(items: readonly unknown[]): Generator<readonly unknown[]> {
  for (let from = 0; from < items.length; from += PIECE) yield items.slice(from, from + PIECE);
}

async function* listParts(
  head: object,
  pieces: AsyncIterable<readonly unknown[]> | Iterable<readonly unknown[]>,
): AsyncGenerator<string> {
  const begin = JSON.stringify(head).slice(0, -1);
  yield `${begin}${begin === "{" ? "" : ","}"items":[\n`;
  let separator = "";
  const iterator = Symbol.asyncIterator in pieces ? pieces[Symbol.asyncIterator]() : pieces[Symbol.iterator]();
  for (;;) {
    const text = await turns.run(async () => {
      const { done = false, value } = await iterator.next();
      return done ? undefined : JSON.stringify(value).slice(1, -1);
    });
    if (text === undefined) break;
    if (text === "") continue;
    yield `${separator}${text}\n`;
    separator = ",";
  }
  yield "]}";
}
