/** Lists: complete ones and pages of a snapshot. */
import { encodeList } from "./protobuf.ts";
import { apiVersionOf } from "./resources.ts";
import { type ApiRequest, numberOf, selectionOf } from "./requests.ts";
import { BadRequest } from "./selectors.ts";
import { expiredContinue, statusFor, type StatusFields } from "./status.ts";
import type { Store, Stored } from "./store.ts";

/** The body, or the reason why there is none. */
export type ListAnswer = { readonly body: Buffer } | { readonly status: StatusFields };

interface Token {
  readonly v: "meta.k8s.io/v1";
  /** -1: the current contents. */
  readonly rv: number;
  /** Key of the last delivered object. */
  readonly start: string;
}

/** Throws `BadRequest`. */
export function answerList(store: Store, request: ApiRequest, protobuf: boolean, maxPage = Infinity): ListAnswer {
  const { resource, query } = request;
  const selection = selectionOf(request);
  // "Any version" is served from the watch cache, which has no pages.
  const limit = query.get("resourceVersion") === "0" ? 0 : Math.min(numberOf(query, "limit") ?? 0, maxPage);
  const text = query.get("continue") ?? "";
  const token = text === "" ? undefined : readToken(text);
  const asked = numberOf(query, "resourceVersion") ?? 0;
  if (asked > store.revision) return { status: tooLarge(asked, store.revision) };
  const revision = token === undefined || token.rv === -1 ? store.revision : token.rv;
  const all = revision === store.revision ? store.list(resource) : store.snapshot(resource, revision);
  if (all === undefined) {
    return { status: expiredContinue(writeToken({ v: "meta.k8s.io/v1", rv: -1, start: token?.start ?? "" })) };
  }
  const page: Stored[] = [];
  let more: number | undefined;
  for (let at = token === undefined ? 0 : after(all, token.start); at < all.length; at++) {
    const stored = all[at];
    if (!selection.matches(stored.object)) continue;
    if (limit > 0 && page.length === limit) {
      more = all.length - at;
      break;
    }
    page.push(stored);
  }
  const last = page.at(-1);
  const metadata: Record<string, unknown> = { resourceVersion: String(revision) };
  if (more !== undefined && last !== undefined) {
    store.keepSnapshot(resource);
    metadata["continue"] = writeToken({ v: "meta.k8s.io/v1", rv: revision, start: last.key });
    if (!selection.narrowed) metadata["remainingItemCount"] = more;
  }
  const { kind } = resource;
  const apiVersion = apiVersionOf(resource);
  if (protobuf) {
    const items = page.map(({ message }) => message);
    return { body: encodeList({ kind, apiVersion }, metadata, items) };
  }
  const head = `{"kind":"${kind}List","apiVersion":"${apiVersion}","metadata":${JSON.stringify(metadata)}`;
  return { body: Buffer.from(`${head},"items":[${page.map(({ body }) => `{${body}`).join(",")}]}\n`) };
}

/** Returns the index of the first object after a key. */
function after(all: readonly Stored[], key: string): number {
  let low = 0;
  let high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (all[middle].key <= key) low = middle + 1;
    else high = middle;
  }
  return low;
}

function writeToken(token: Token): string {
  return Buffer.from(JSON.stringify(token)).toString("base64url");
}

function readToken(text: string): Token {
  try {
    return JSON.parse(Buffer.from(text, "base64url").toString()) as Token;
  } catch {
    throw new BadRequest("continue key is not valid: illegal base64 data");
  }
}

/** The answer of a server that has not yet seen this revision. */
function tooLarge(asked: number, current: number): StatusFields {
  return {
    ...statusFor(504, `Timeout: Too large resource version: ${asked}, current: ${current}`),
    details: {
      causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }],
      retryAfterSeconds: 1,
    },
  };
}
