/**
 * Serves the status page: one HTML document that loads no external resources, and the JSON that it shows. It can change nothing, and nothing is
 * computed unless a browser asks.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { jsonParts } from "../control/json-parts.js";
import { NotReady, type Route } from "../control/control-server.js";
import type { EventList, StatusReport } from "../../observe/status-report.js";
import {
  type HttpHandler,
  type HttpReply,
  JSON_TYPE,
  jsonReply,
  NOT_FOUND,
  textReply,
} from "../../observe/http-server.js";
import { PacketError } from "../../tools/explain/packet-report.js";
import type { PageExplanation, PageUpdate } from "./page-update.js";
import { BUCKET_MS, type WriteHistory } from "./write-history.js";

const STATUS_PAGE = "/status";

/** The document that deploy/page.mjs builds. It lies beside this file's output in both dist/daemon/page/ and the image's dist/chunks/. */
const DOCUMENT = new URL("./page.html", import.meta.url);

const UPDATE_MS = 2_000;
/** Maximum number of open streams: one per visible page. */
const MAX_STREAMS = 8;
/** Maximum length of a packet's description, in characters. */
const MAX_WORDS_LENGTH = 300;

interface StatusPageOptions {
  /** The control socket's routes. */
  readonly answers: Route;
  readonly history: WriteHistory;
  /** Explains the packet that these arguments of `nft-proxier explain` describe. Rejects with PacketError if they are invalid. */
  readonly explain: (words: readonly string[]) => Promise<string>;
}

/** Handles STATUS_PAGE and all paths below it. */
export function statusPage(options: StatusPageOptions): HttpHandler {
  const page = new StatusPage(options);
  return (request) => page.answer(request);
}

interface Shared {
  /** Unix time, ms. */
  readonly at: number;
  readonly status: Promise<unknown> | undefined;
  readonly events: Promise<unknown> | undefined;
}

class StatusPage {
  readonly #options: StatusPageOptions;
  #document: Promise<HttpReply> | undefined;
  #streams = 0;
  #explaining = false;
  #shared: Shared | undefined;

  constructor(options: StatusPageOptions) {
    this.#options = options;
  }

  async answer({ method, path, query, signal }: Parameters<HttpHandler>[0]): Promise<HttpReply> {
    if (method !== "GET" && method !== "HEAD") {
      return { ...textReply(405, "only GET is allowed\n"), headers: { Allow: "GET, HEAD" } };
    }
    const words = path.slice(STATUS_PAGE.length + 1).split("/");
    if (path === STATUS_PAGE) return (this.#document ??= documentReply());
    if (words[0] === "stream" && words.length === 1) return this.#stream(method, signal);
    if (words[0] !== "v1") return NOT_FOUND;
    if (words[1] === "explain" && words.length === 2) return this.#explain(query.get("packet") ?? "");
    return this.#json(words.slice(1));
  }

  async #json(words: readonly string[]): Promise<HttpReply> {
    let path: readonly string[];
    try {
      path = words.map(decodeURIComponent);
    } catch {
      return NOT_FOUND;
    }
    const body = await this.#answer(path);
    if (body === undefined) return NOT_FOUND;
    if (body instanceof NotReady) return textReply(503, `${body.reason}\n`);
    return { status: 200, type: JSON_TYPE, body: jsonParts(body), headers: NOT_STORED };
  }

  #answer(path: readonly string[]): Promise<unknown> | undefined {
    const [word] = path;
    if (path.length > 1 || (word !== "status" && word !== "events")) return this.#options.answers(path);
    return this.#share(Date.now())[word];
  }

  #stream(method: string, signal: AbortSignal): HttpReply {
    if (this.#streams >= MAX_STREAMS) return textReply(503, `${MAX_STREAMS} pages are open already\n`);
    const body = method === "HEAD" ? "" : this.#updates(signal);
    return { status: 200, type: "text/event-stream", body, headers: NOT_STORED };
  }

  async *#updates(signal: AbortSignal): AsyncGenerator<string> {
    this.#streams++;
    try {
      let sent: { readonly at: number; readonly lastEvent: number | undefined } | undefined;
      while (!signal.aborted) {
        const update: PageUpdate = await this.#update(sent);
        sent = { at: update.now, lastEvent: update.events === undefined ? sent?.lastEvent : update.events.at(-1)?.at };
        yield `data: ${JSON.stringify(update)}\n\n`;
        await sleep(UPDATE_MS, undefined, { signal, ref: false }).catch(() => undefined);
      }
    } finally {
      this.#streams--;
    }
  }

  async #update(
    sent: { readonly at: number; readonly lastEvent: number | undefined } | undefined,
  ): Promise<PageUpdate> {
    const { history } = this.#options;
    const at = Date.now();
    const { status, items } = await this.#latest(at);
    const changed = sent === undefined || items.at(-1)?.at !== sent.lastEvent;
    const writes = history.buckets(sent === undefined ? 0 : sent.at - BUCKET_MS);
    return { now: at, status, writes, events: changed ? items : undefined };
  }

  async #latest(at: number): Promise<{ readonly status: StatusReport; readonly items: EventList["items"] }> {
    const { status, events } = this.#share(at);
    return { status: (await status) as StatusReport, items: ((await events) as EventList).items };
  }

  /** Requests at nearly the same time share an answer, because a status also reads from the kernel. */
  #share(at: number): Shared {
    if (this.#shared === undefined || at - this.#shared.at >= UPDATE_MS / 2) {
      const { answers } = this.#options;
      this.#shared = { at, status: answers(["status"]), events: answers(["events"]) };
    }
    return this.#shared;
  }

  /** Explains one packet at a time, because this reads from the kernel. */
  async #explain(text: string): Promise<HttpReply> {
    if (text.length > MAX_WORDS_LENGTH) return textReply(400, "this is not a packet\n");
    if (this.#explaining) return textReply(429, "another packet is being explained\n");
    this.#explaining = true;
    try {
      const explanation: PageExplanation = { text: await this.#options.explain(text.split(/\s+/).filter(Boolean)) };
      return { ...jsonReply(explanation), headers: NOT_STORED };
    } catch (error) {
      if (error instanceof PacketError) return textReply(400, `${error.message}\n`);
      throw error;
    } finally {
      this.#explaining = false;
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
