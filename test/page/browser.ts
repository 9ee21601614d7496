/** A headless Chromium in a network namespace, driven over its pipe (the DevTools protocol, a JSON object and a NUL at a time). */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Readable, Writable } from "node:stream";
import type { Namespace } from "../lab/namespace.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Installed by Debian's package. */
const CHROMIUM = "/usr/bin/chromium";

const FLAGS = [
  "--headless=new",
  "--remote-debugging-pipe",
  // It runs as root here, in a namespace with no way out.
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

type Answer = {
  readonly id?: number;
  readonly method?: string;
  readonly result?: unknown;
  readonly error?: { message: string };
};

export class Browser {
  readonly #child: ChildProcess;
  readonly #profile: string;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  /** Exceptions of the page, and actions that the browser denied. */
  readonly errors: string[] = [];
  #lastId = 0;
  #session = "";

  private constructor(child: ChildProcess, profile: string) {
    this.#child = child;
    this.#profile = profile;
    let rest = Buffer.alloc(0);
    (child.stdio[4] as Readable).on("data", (part: Buffer) => {
      rest = Buffer.concat([rest, part]);
      for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
        this.#take(JSON.parse(rest.subarray(0, end).toString()) as Answer & { params?: unknown });
        rest = rest.subarray(end + 1);
      }
    });
  }

  static async open(namespace: Namespace): Promise<Browser> {
    const profile = mkdtempSync(path.join(tmpdir(), "nft-proxier-chromium-"));
    const child = namespace.spawn([CHROMIUM, ...FLAGS, `--user-data-dir=${profile}`, "about:blank"], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
      env: { ...process.env, HOME: profile },
    });
    const browser = new Browser(child, profile);
    const { targetInfos } = (await browser.send("Target.getTargets")) as {
      readonly targetInfos: readonly { readonly type: string; readonly targetId: string }[];
    };
    const targetId = targetInfos.find(({ type }) => type === "page")?.targetId;
    const attached = await browser.send("Target.attachToTarget", { targetId, flatten: true });
    browser.#session = (attached as { readonly sessionId: string }).sessionId;
    for (const domain of ["Page", "Runtime", "Log"]) await browser.send(`${domain}.enable`);
    return browser;
  }

  async close(): Promise<void> {
    this.#child.kill("SIGTERM");
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }

  /** Sends a command of the DevTools protocol; rejects with its error. */
  send(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<unknown> {
    const id = ++this.#lastId;
    const session = this.#session === "" ? {} : { sessionId: this.#session };
    (this.#child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, ...session })}\0`);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, ({ result, error }) => {
        if (error === undefined) resolve(result);
        else reject(new Error(`${method}: ${error.message}`));
      });
    });
  }

  /** Exposes the stream of every status page from now on as `window.pageSource`. */
  async exposeStream(): Promise<void> {
    const source = `window.EventSource = class extends EventSource {
      constructor(...given) {
        super(...given);
        window.pageSource = this;
      }
    };`;
    await this.send("Page.addScriptToEvaluateOnNewDocument", { source });
  }

  /** Records in `window.firstAt` of later pages when an element first exists, in ms since the navigation. */
  async recordFirst(selector: string): Promise<void> {
    const source = `new MutationObserver((_, observer) => {
      if (document.querySelector(${JSON.stringify(selector)}) === null) return;
      window.firstAt = performance.now();
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true });`;
    await this.send("Page.addScriptToEvaluateOnNewDocument", { source });
  }

  /** Returns the serious findings of axe-core about the document as it is. */
  async violations(): Promise<readonly string[]> {
    await this.evaluate(`${AXE}; undefined`);
    return this.evaluate(`axe.run().then(({ violations }) => violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .slice(0, 3)
      .map(({ id, nodes }) => id + ": " + nodes.slice(0, 3).map(({ html, failureSummary }) => html.slice(0, 200) + " " + failureSummary).join(" | ")))`);
  }

  async goTo(url: string): Promise<void> {
    await this.send("Page.navigate", { url });
  }

  /** Returns the value of a JavaScript expression in the page. */
  async evaluate<T>(expression: string): Promise<T> {
    const answer = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    const { result, exceptionDetails } = answer as {
      readonly result: { readonly value: T };
      readonly exceptionDetails?: { readonly text: string };
    };
    if (exceptionDetails !== undefined) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  }

  /** Returns the text that an element shows; "" if it does not exist. */
  text(selector: string): Promise<string> {
    return this.evaluate(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);
  }

  /** `scale` is the number of the screen's pixels in one of the page's, in each direction. */
  async resize(width: number, height: number, { mobile = false, scale = 1 } = {}): Promise<void> {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: scale, mobile });
  }

  async prefer(scheme: "light" | "dark"): Promise<void> {
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  /** Returns the whole document as WebP, of this quality in percent. */
  async screenshot(quality = 80): Promise<Buffer> {
    const format = { format: "webp", quality, captureBeyondViewport: true };
    const { data } = (await this.send("Page.captureScreenshot", format)) as { readonly data: string };
    return Buffer.from(data, "base64");
  }

  #take(answer: Answer & { readonly params?: unknown }): void {
    if (answer.id !== undefined) {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    } else if (answer.method === "Runtime.exceptionThrown" || isComplaint(answer)) {
      this.errors.push(JSON.stringify(answer.params));
    }
  }
}

/** Network errors do not count: the page itself shows an answer with status 400. */
function isComplaint({ method, params }: Answer & { readonly params?: unknown }): boolean {
  if (method !== "Log.entryAdded") return false;
  const { entry } = params as { readonly entry: { readonly source: string; readonly level: string } };
  return entry.level === "error" && entry.source !== "network";
}
