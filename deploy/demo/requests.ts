/**
 * The demo's clients: sends requests, each on its own connection, and counts the answers of each pod.
 *
 *   node requests.ts URL COUNT        COUNT requests
 *   node requests.ts URL until-told   as many as possible, with a pause between them, until stdin ends
 *
 * Prints a line "first NAME MS" at the first answer of each pod (MS since the epoch), and one line of JSON at the end.
 */
import { get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

/** The result of one run. */
export interface Answers {
  /** Answers by pod. */
  readonly counts: Record<string, number>;
  /** Errors, one text for each request without an answer. */
  readonly failures: string[];
}

const CONCURRENCY = 8;
const PAUSE_MS = 10;
const TIMEOUT_MS = 10_000;

function request(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const sent = get(url, { agent: false, timeout: TIMEOUT_MS }, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (body += chunk));
      response.on("end", () => resolve(body));
      response.on("error", reject);
    });
    sent.on("timeout", () => sent.destroy(new Error(`no answer within ${TIMEOUT_MS} ms`)));
    sent.on("error", reject);
  });
}

const [url = "", count = ""] = process.argv.slice(2);
const untilTold = count === "until-told";
const answers: Answers = { counts: {}, failures: [] };
let left = untilTold ? Number.POSITIVE_INFINITY : Number(count);

async function client(): Promise<void> {
  while (left > 0) {
    left -= 1;
    try {
      const name = await request(url);
      if (answers.counts[name] === undefined) process.stdout.write(`first ${name} ${Date.now()}\n`);
      answers.counts[name] = (answers.counts[name] ?? 0) + 1;
    } catch (error) {
      answers.failures.push(error instanceof Error ? error.message : String(error));
    }
    if (untilTold) await sleep(PAUSE_MS);
  }
}

if (untilTold) process.stdin.on("end", () => (left = 0)).resume();
await Promise.all(Array.from({ length: CONCURRENCY }, client));
process.stdout.write(`${JSON.stringify(answers)}\n`);
