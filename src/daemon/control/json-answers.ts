import { type HttpReply, JSON_TYPE } from "../../observe/http-server.js";
import { jsonParts } from "./json-parts.js";

/** Answers a path below "/v1/". Returns undefined if there is no such path. The promise may resolve to a NotReady. */
export type Route = (path: readonly string[]) => Promise<unknown> | undefined;

/** The answer of a route that cannot answer yet: 503, with the reason. Clients then read the kernel's rules instead. */
export class NotReady {
  constructor(readonly reason: string) {}
}

/**
 * Answers a request with what `route` returns.
 * @param words of the path below "/v1/", encoded.
 * @param refuse makes the reply if there is no answer: 404 or 503, with the reason.
 */
export async function answerJson(
  route: Route,
  words: readonly string[],
  refuse: (status: number, reason: string) => HttpReply,
): Promise<HttpReply> {
  const path = decoded(words);
  const body = path && (await route(path));
  if (body === undefined) return refuse(404, `no such path: ${words.join("/")}`);
  if (body instanceof NotReady) return refuse(503, body.reason);
  return { status: 200, type: JSON_TYPE, body: jsonParts(body), headers: { "Cache-Control": "no-store" } };
}

/** Returns undefined if a word cannot be decoded. */
function decoded(words: readonly string[]): readonly string[] | undefined {
  try {
    return words.map(decodeURIComponent);
  } catch {
    return undefined;
  }
}
