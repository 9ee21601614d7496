import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type HttpReply, HttpServer } from "../../../../src/observe/http-server.js";
// The built file: the document is assembled by the build.
import { statusPage } from "../../../../dist/daemon/page/status-page.js";
import type { StatusReport } from "../../../../src/observe/status-report.js";
import { PageFeed } from "../../../../dist/daemon/page/page-feed.js";
import { WriteHistory } from "../../../../dist/daemon/page/write-history.js";
import { UsageError } from "../../../../dist/base/user-error.js";
import { NotReady } from "../../../../dist/daemon/control/json-answers.js";
import { patience } from "../../../lab/patience.ts";
import { atLength } from "../../../lab/length.ts";
import { Dice } from "../../../support/dice.ts";
import { FUZZ_SEED } from "../../../support/fuzz-seed.ts";
import { sendRaw } from "../../../support/send-raw.ts";
import { WRITTEN } from "../../proxier/support/sync-report.ts";

const services = Array.from({ length: 2_000 }, (_, i) => ({ namespace: "demo", name: `s${i}` }));
const STATUS = { kind: "Status", problems: [], families: [{ inForce: true }] } as unknown as StatusReport;
const BODIES: Readonly<Record<string, unknown>> = {
  status: STATUS,
  events: { kind: "EventList", items: [{ at: 1, type: "normal", message: "rules active" }] },
  services: { kind: "ServiceList", items: services },
  "services/demo/a b": { kind: "ServiceList", items: [] },
  endpoints: new NotReady("it has written no rules since startup"),
};

interface Ask {
  readonly host?: string;
  readonly method?: string;
  readonly signal?: AbortSignal;
}

function handlerOfPage(): ReturnType<typeof statusPage> {
  const answers = (path: readonly string[]): Promise<unknown> | undefined => {
    const body = BODIES[path.join("/")];
    return body === undefined ? undefined : Promise.resolve(body);
  };
  const listed = {
    isCounting: false,
    portsOf: () => Promise.resolve(new Map()),
    withEndpoint: (text: string) => Promise.resolve([`demo/${text}`]),
    reasons: () => Promise.resolve(new Map<string, string>()),
    readCounts: () => Promise.resolve(undefined),
    onCounts: () => undefined,
  };
  return statusPage({
    answers,
    services: listed,
    feed: new PageFeed({
      answers,
      services: listed,
      history: new WriteHistory(),
      status: () => Promise.resolve(STATUS),
    }),
    explain: (words) =>
      words.length === 1 ? Promise.resolve(`about ${words[0]}`) : Promise.reject(new UsageError("no packet")),
  });
}

function page(): (target: string, ask?: Ask) => Promise<HttpReply> {
  const handler = handlerOfPage();
  return async (target, { host = "127.0.0.1:10249", method = "GET", signal = new AbortController().signal } = {}) => {
    const [path = "", query] = target.split("?");
    return handler({
      method,
      path,
      host,
      query: new URLSearchParams(query),
      accept: "",
      body: Promise.resolve(""),
      signal,
    });
  };
}

async function textOf({ body }: HttpReply): Promise<string> {
  if (typeof body === "string") return body;
  let text = "";
  for await (const part of body) text += part;
  return text;
}

async function jsonOf(reply: HttpReply): Promise<unknown> {
  return JSON.parse(await textOf(reply));
}

test("a request that cannot be answered yet is rejected with the reason, not answered as empty", async () => {
  const reply = await page()("/status/v1/endpoints");
  expect([reply.status, await textOf(reply)]).toEqual([503, "it has written no rules since startup\n"]);
});

describe("the document", () => {
  test("loads nothing from elsewhere, and runs only its own scripts", async () => {
    const { status, body, headers = {} } = await page()("/status");
    expect(status).toBe(200);
    const text = body as string;
    expect(text).not.toMatch(/\b(?:src|href)=|@import|url\(|https?:\/\/(?!www\.w3\.org\/)/);
    const policy = headers["Content-Security-Policy"] ?? "";
    expect(policy).toContain("default-src 'none'");
    for (const tag of ["script", "style"]) {
      const [, content = ""] = new RegExp(`<${tag}>(.*)</${tag}>`, "s").exec(text) ?? [];
      expect(content.length).toBeGreaterThan(1_000);
      expect(policy).toContain(`${tag}-src 'sha256-${createHash("sha256").update(content).digest("base64")}'`);
    }
  });

  test("answers only GET and HEAD", async () => {
    expect(await page()("/status", { method: "POST" })).toMatchObject({ status: 405 });
    expect(await page()("/status/v1/status", { method: "DELETE" })).toMatchObject({ status: 405 });
    expect(await page()("/status", { method: "HEAD" })).toMatchObject({ status: 200 });
  });
});

describe("contents", () => {
  test("the answers are the control socket's, and long lists arrive in parts", async () => {
    const ask = page();
    expect(await jsonOf(await ask("/status/v1/status"))).toEqual(BODIES["status"]);
    expect(await jsonOf(await ask("/status/v1/services"))).toEqual(BODIES["services"]);
    expect(await jsonOf(await ask("/status/v1/services/demo/a%20b"))).toEqual(BODIES["services/demo/a b"]);
  });

  test.each([
    "/status/",
    "/status/v2/status",
    "/status/v1",
    "/status/v1/%ff",
    "/status/v1/services/x/y",
    "/status/stream/x",
  ])("%s is not found", async (path) => {
    expect(await page()(path)).toMatchObject({ status: 404 });
  });

  test("services are found by an endpoint, and a search without text is rejected", async () => {
    const ask = page();
    expect(await jsonOf(await ask("/status/v1/find?text=Web-1"))).toEqual({ services: ["demo/web-1"], more: false });
    expect(await ask("/status/v1/find")).toMatchObject({ status: 400 });
  });

  test("a packet is explained, and malformed words are rejected", async () => {
    const ask = page();
    expect(await jsonOf(await ask("/status/v1/explain?packet=+10.96.0.1:80+"))).toEqual({ text: "about 10.96.0.1:80" });
    expect(await ask("/status/v1/explain?packet=a+b")).toMatchObject({ status: 400, body: "no packet\n" });
    expect(await ask(`/status/v1/explain?packet=${"x".repeat(1_000)}`)).toMatchObject({ status: 400 });
  });
});

describe("the stream", () => {
  test("sends the status, and each event once, and ends when the browser disconnects", async () => {
    const gone = new AbortController();
    const { body, type } = await page()("/status/stream", { signal: gone.signal });
    expect(type).toBe("text/event-stream");
    const updates: unknown[] = [];
    for await (const part of body as AsyncIterable<string>) {
      expect(part).toMatch(/^data: .*\n\n$/);
      updates.push(JSON.parse(part.slice("data: ".length)));
      if (updates.length === 2) gone.abort();
    }
    expect(updates).toMatchObject([
      { status: BODIES["status"], events: [{ message: "rules active" }], writes: [], changed: [] },
      { status: BODIES["status"], changed: [] },
    ]);
    expect(updates[1]).not.toHaveProperty("events");
  });

  test("serves eight browsers at a time, and a ninth takes the place of the one that has read least recently", async () => {
    const ask = page();
    const open = async (): Promise<AsyncIterator<string>> => {
      const { body } = await ask("/status/stream");
      const updates = (body as AsyncIterable<string>)[Symbol.asyncIterator]();
      await updates.next();
      return updates;
    };
    const opened = await Promise.all(Array.from({ length: 8 }, open));
    const [first, second] = opened;
    await first.next();
    const ninth = await open();
    const rest = async (updates: AsyncIterator<string>): Promise<unknown[]> => {
      const next = await updates.next();
      return next.done === true ? [] : [JSON.parse(next.value.slice("data: ".length)), ...(await rest(updates))];
    };
    expect((await rest(second)).at(-1)).toEqual({ replaced: true });
    for (const each of [first, ninth]) expect((await each.next()).done).toBe(false);
  });
});

const NOISE = atLength({ short: 500, usual: 2_000, nightly: 100_000 });
const HEADS = [
  "GET /status",
  "GET /status/v1/services/",
  "GET /status/v1/explain?packet=",
  "POST /status HTTP/1.1\r\n",
  "GET /status/v1/status HTTP/1.1\r\nHost: ",
  "HEAD /status/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
];

test(
  `${NOISE} random requests neither stop nor block it, FUZZ_SEED=${FUZZ_SEED}`,
  { timeout: patience(180_000 + 5 * NOISE) },
  async () => {
    const failures: unknown[] = [];
    const address = { host: "127.0.0.1", port: 0 };
    const server = new HttpServer({
      address,
      handler: handlerOfPage(),
      onRequestFailed: (error) => failures.push(error),
    });
    await server.listen();
    const dice = new Dice(FUZZ_SEED);
    const to = { host: "127.0.0.1", port: server.port ?? 0 };
    for (let sent = 0; sent < NOISE; sent += 10) {
      const batch = Array.from({ length: 10 }, (_, i) => {
        const end = i % 2 === 0 ? " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" : "\r\n\r\n";
        const noise = dice.bytes((sent + i) % 300);
        return sendRaw(to, Buffer.concat([Buffer.from(HEADS[i % HEADS.length] ?? ""), noise, Buffer.from(end)]));
      });
      for (const answer of await Promise.all(batch))
        expect(answer).toMatch(/^(HTTP\/1\.1 (200|400|403|404|405|429|431) |$)/);
    }
    expect(failures).toEqual([]);
    const whole = await fetch(`http://127.0.0.1:${server.port}/status/v1/services`);
    expect(await whole.json()).toEqual(BODIES["services"]);
    await server.close();
  },
);

test("writes are counted in buckets of two seconds for ten minutes, except those that the kernel already had", () => {
  let now = 1_000_000_000;
  const history = new WriteHistory(() => now);
  const work = { transactions: 1, operations: 1, bytes: 1, kernelMs: 1 };
  history.synced({ ...WRITTEN, ms: 3, work });
  history.synced({ ...WRITTEN, ms: 5, work });
  history.synced({ ...WRITTEN, ms: 900, work: { ...work, transactions: 0 } });
  now += 2_000;
  history.synced({ ...WRITTEN, ok: false, ms: 7 });
  const at = 1_000_000_000;
  expect(history.buckets()).toEqual([
    { at, writes: 2, failed: 0, longestMs: 5 },
    { at: at + 2_000, writes: 1, failed: 1, longestMs: 7 },
  ]);
  expect(history.buckets(now)).toHaveLength(1);
  for (let i = 0; i < 1_000; i++) {
    now += 2_000;
    history.synced({ ...WRITTEN, ms: 1, work });
  }
  expect(history.buckets()).toHaveLength(300);
});
