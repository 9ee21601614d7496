/** Follows /status/stream while the page is visible, and connects again when the connection ends. */
import type { PageMessage, PageReplaced } from "../page-update.js";
import { AWAY } from "./requests.js";

/** Silence after which the daemon counts as away: it sends an update every 2 s. */
const SILENT_MS = 5_000;
/** Time until the next attempt, ms. */
const AGAIN_MS = 2_000;

export interface StreamListener {
  message(message: PageMessage): void;
  /** The content may be outdated, for this reason. */
  lost(reason: string): void;
}

export class Stream {
  #source: EventSource | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #again: ReturnType<typeof setTimeout> | undefined;
  /** Id of the last update, once its list is complete. */
  #after = "";
  #complete = false;

  constructor(private readonly listener: StreamListener) {
    document.addEventListener("visibilitychange", () => this.follow());
  }

  /** Closes the stream while the page is hidden, so that the daemon computes nothing for it. */
  follow(): void {
    clearTimeout(this.#silence);
    clearTimeout(this.#again);
    if (document.hidden) return this.#close();
    if (this.#source !== undefined) return;
    const source = new EventSource(`/status/stream?after=${this.#complete ? this.#after : ""}`);
    this.#source = source;
    source.addEventListener("message", ({ data }: MessageEvent<string>) => {
      this.#awaitMessage();
      const message = JSON.parse(data) as PageMessage | PageReplaced;
      if ("replaced" in message)
        return this.#lost("another page has taken the place of this one (8 may be open); trying again");
      if ("id" in message) this.#after = message.id;
      else this.#complete = message.last === true;
      this.listener.message(message);
    });
    // The browser does not say why. It would connect again with the same id.
    source.addEventListener("error", () => {
      this.#lost(source.readyState === EventSource.CLOSED ? "the daemon refuses this page; trying again" : AWAY);
    });
    this.#awaitMessage();
  }

  #close(): void {
    this.#source?.close();
    this.#source = undefined;
  }

  /** The connection stays open if the daemon hangs or the network is gone, so the next message has a time limit. */
  #awaitMessage(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#lost(AWAY), SILENT_MS);
  }

  #lost(reason: string): void {
    clearTimeout(this.#silence);
    this.#close();
    this.listener.lost(reason);
    this.#again = setTimeout(() => this.follow(), AGAIN_MS);
  }
}
