/**
 * Serves the status page: one HTML document that loads no external resources, and the JSON that it shows. It can change nothing, and nothing is
 * computed unless a browser asks.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { answerJson, type Route } from "../control/json-answers.js";
import { type HttpHandler, type HttpReply, jsonReply, NOT_FOUND, textReply } from "../../observe/http-server.js";
import { UsageError } from "../../base/user-error.js";
import type { ListedChanges } from "../answers/service-board.js";
import type { PageFeed } from "./page-feed.js";
import type { PageExplanation, PageFound, PageReplaced } from "./page-update.js";

const STATUS_PAGE = "/status";

/** The document that deploy/page.mjs builds. It lies beside this file's output in both dist/daemon/page/ and the image's dist/chunks/. */
const DOCUMENT = new URL("./page.html", import.meta.url);

/** Maximum number of open streams: one per visible page. A further one replaces the one that has read least recently. */
const MAX_STREAMS = 8;
const REPLACED = `data: ${JSON.stringify({ replaced: true } satisfies PageReplaced)}\n\n`;
/** Maximum length of a packet's description, in characters. */
const MAX_WORDS_LENGTH = 300;

/** Maximum number of services that a search for an endpoint returns. */
const MOST_FOUND = 200;

interface StatusPageOptions {
  /** The control socket's routes. */
  readonly answers: Route;
  readonly services: Pick<ListedChanges, "withEndpoint">;
  readonly feed: Pick<PageFeed, "follow">;
  /** Explains the packet that these arguments of `nft-proxier explain` describe. Rejects with UsageError if they are invalid. */
  readonly explain: (words: readonly string[]) => Promise<string>;
}

/** Handles STATUS_PAGE and all paths below it. */
export function statusPage(options: StatusPageOptions): HttpHandler {
  const page = new StatusPage(options);
  return (request) => page.answer(request);
}

class StatusPage {
  #document: Promise<HttpReply> | undefined;
  /** Each ends a stream. The one that has read least recently is the first. */
  readonly #streams = new Set<AbortController>();
  /** Kinds of requests that are being answered, of those that take long. */
  readonly #working = new Set<string>();

  constructor(private readonly options: StatusPageOptions) {}

  async answer({ method, path, query, signal }: Parameters<HttpHandler>[0]): Promise<HttpReply> {
    if (method !== "GET" && method !== "HEAD") {
      return { ...textReply(405, "only GET is allowed\n"), headers: { Allow: "GET, HEAD" } };
    }
    const words = path.slice(STATUS_PAGE.length + 1).split("/");
    if (path === STATUS_PAGE) return (this.#document ??= documentReply());
    if (words[0] === "stream" && words.length === 1)
      return this.#stream(method, query.get("after") ?? undefined, signal);
    if (words[0] !== "v1") return NOT_FOUND;
    if (words[1] === "explain" && words.length === 2) return this.#explain(query.get("packet") ?? "");
    if (words[1] === "find" && words.length === 2) return this.#find((query.get("text") ?? "").toLowerCase());
    return answerJson(this.options.answers, words.slice(1), (status, reason) => textReply(status, `${reason}\n`));
  }

  #stream(method: string, after: string | undefined, signal: AbortSignal): HttpReply {
    const body = method === "HEAD" ? "" : this.#messages(after, signal);
    return { status: 200, type: "text/event-stream", body, headers: NOT_STORED };
  }

  /** If a further stream were rejected, clients that never read could keep everyone out. */
  async *#messages(after: string | undefined, signal: AbortSignal): AsyncGenerator<string> {
    const [slowest] = this.#streams;
    if (slowest !== undefined && this.#streams.size >= MAX_STREAMS) {
      this.#streams.delete(slowest);
      slowest.abort();
    }
    const replaced = new AbortController();
    this.#streams.add(replaced);
    try {
      for await (const message of this.options.feed.follow(after, AbortSignal.any([signal, replaced.signal]))) {
        yield message;
        if (replaced.signal.aborted) break;
        this.#streams.delete(replaced);
        this.#streams.add(replaced);
      }
      if (replaced.signal.aborted) yield REPLACED;
    } finally {
      this.#streams.delete(replaced);
    }
  }

  /** Searches for one text at a time, because this visits all endpoints. */
  #find(text: string): Promise<HttpReply> {
    if (text === "" || text.length > MAX_WORDS_LENGTH)
      return Promise.resolve(textReply(400, "this is not a name or address\n"));
    return this.#alone("find", async () => {
      const services = await this.options.services.withEndpoint(text, MOST_FOUND);
      return { services, more: services.length >= MOST_FOUND } satisfies PageFound;
    });
  }

  /** Explains one packet at a time, because this reads from the kernel. */
  #explain(text: string): Promise<HttpReply> {
    if (text.length > MAX_WORDS_LENGTH) return Promise.resolve(textReply(400, "this is not a packet\n"));
    return this.#alone("explain", async () => {
      return { text: await this.options.explain(text.split(/\s+/).filter(Boolean)) } satisfies PageExplanation;
    });
  }

  async #alone(what: string, work: () => Promise<object>): Promise<HttpReply> {
    if (this.#working.has(what)) return textReply(429, "another page has asked; try again\n");
    this.#working.add(what);
    try {
      return { ...jsonReply(await work()), headers: NOT_STORED };
    } catch (error) {
      if (error instanceof UsageError) return textReply(400, `${error.message}\n`);
      throw error;
    } finally {
      this.#working.delete(what);
    }
  }
}

const NOT_STORED = { "Cache-Control": "no-store" } as const;

/** The policy allows only the document's own script and style, and only requests to this server. */
async function documentReply(): Promise<HttpReply> {
  const body = await readFile(DOCUMENT, "utf8");
  const hashOf = (tag: string): string => {
    const content = new RegExp(`<${tag}[^>]*>(.*?)</${tag}>`, "s").exec(body)?.[1] ?? "";
    return `'sha256-${createHash("sha256").update(content).digest("base64")}'`;
  };
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf("script")}`,
    `style-src ${hashOf("style")}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ];
  const headers = {
    "Content-Security-Policy": policy.join("; "),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
  };
  return { status: 200, type: "text/html; charset=utf-8", body, headers };
}
