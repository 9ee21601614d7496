/**
 * The program's CPU time for open status pages, while slices change: one second with pages, one without, in turns, so that a busy moment affects
 * both. The pages are readers of the stream in this process. Prints one line of JSON (`Pages`). Arguments: services endpoints pages seconds
 */
import { setTimeout as sleep } from "node:timers/promises";
import { startApiCluster } from "./api-cluster.ts";
import { freshPod, makeSlice, podsOf } from "./cluster.ts";
import { cpuMsOf, median, tell } from "./lib.ts";
import { Program } from "./program.ts";

export interface Pages {
  readonly pages: number;
  /** Share of one CPU without and with pages, percent. */
  readonly without: number;
  readonly with: number;
  /** Time until the first services arrive, and all of them, ms. */
  readonly firstMs: number;
  readonly allMs: number;
  /** Bytes that one page receives at first, and then per minute. */
  readonly loadBytes: number;
  readonly bytesPerMinute: number;
}

const [services, endpoints, pages, seconds] = process.argv.slice(2).map(Number);
const STREAM = "http://127.0.0.1:10249/status/stream";
const CHANGES_PER_MINUTE = 1_000;
/** The work that directly follows the load ends within this time. */
const REST_MS = 5_000;
const PHASES = 3;

const { flags, put, close } = await startApiCluster(services, endpoints);
const program = await Program.start(flags, false, ({ msg, family }) => msg === "synced" && family === "ip");
await sleep(REST_MS);

class Viewer {
  readonly #gone = new AbortController();
  readonly #began = performance.now();
  bytes = 0;
  firstMs = Number.NaN;
  allMs = Number.NaN;

  /** Resolves when all services have arrived, and then reads on. */
  async open(): Promise<void> {
    const { body } = await fetch(STREAM, { signal: this.#gone.signal });
    if (body === null) throw new Error("no stream");
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let last = "";
    for (;;) {
      const { value = "", done } = await reader.read();
      if (done) throw new Error("the stream ended");
      this.bytes += value.length;
      const text = last.slice(-40) + value;
      last = value;
      if (Number.isNaN(this.firstMs) && text.includes('{"items":[{')) this.firstMs = performance.now() - this.#began;
      if (!text.includes('"last":true}')) continue;
      this.allMs = performance.now() - this.#began;
      break;
    }
    void this.#readOn(reader);
  }

  async #readOn(reader: ReadableStreamDefaultReader<string>): Promise<void> {
    try {
      for (let part = await reader.read(); !part.done; part = await reader.read()) this.bytes += part.value.length;
    } catch {
      // Closed.
    }
  }

  close(): void {
    this.#gone.abort();
  }
}

/** Changes slices, and returns the program's share of one CPU, percent. */
async function shareDuringChanges(serial: number): Promise<number> {
  const [start, cpu] = [performance.now(), cpuMsOf(program.pid)];
  const count = (CHANGES_PER_MINUTE * seconds) / 60;
  for (let i = 0; i < count; i++) {
    const index = Math.floor(Math.random() * services);
    const fresh = podsOf(index, endpoints);
    fresh[0] = freshPod(services, endpoints, serial * 10_000 + i);
    put(makeSlice(index, fresh));
    await sleep(Math.max(0, start + ((i + 1) * 60_000) / CHANGES_PER_MINUTE - performance.now()));
  }
  return (100 * (cpuMsOf(program.pid) - cpu)) / (performance.now() - start);
}

const shares: { without: number[]; with: number[] } = { without: [], with: [] };
let viewers: Viewer[] = [];
let received = 0;
for (let phase = 0; phase < PHASES; phase++) {
  shares.without.push(await shareDuringChanges(2 * phase));
  viewers = Array.from({ length: pages }, () => new Viewer());
  for (const viewer of viewers) await viewer.open();
  const before = viewers[0].bytes;
  shares.with.push(await shareDuringChanges(2 * phase + 1));
  received += viewers[0].bytes - before;
  for (const viewer of viewers) viewer.close();
  await sleep(REST_MS / 2);
  if (phase === 0) viewers[0].bytes = before;
}
const [first] = viewers;
await program.end();
await close();
const result: Pages = {
  pages,
  without: median(shares.without),
  with: median(shares.with),
  firstMs: first.firstMs,
  allMs: first.allMs,
  loadBytes: first.bytes - received / PHASES,
  bytesPerMinute: (received * 60) / (PHASES * seconds),
};
tell(result);
