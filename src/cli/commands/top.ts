/** `top`: shows the services, or one service's endpoints, with the most new connections. */
import { withPort } from "../../base/ip.js";
import { counted } from "../../base/counted.js";
import { setTimeout as sleep } from "node:timers/promises";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { printable } from "../../base/printable.js";
import { type ServiceList, serviceText } from "../../observe/status-report.js";
import type { TopOptions } from "./question-commands.js";
import { DaemonAnswers } from "../answers/daemon-answers.js";
import { select } from "../answers/selection.js";
import { rateText } from "../text/service-text.js";
import { type Column, tableLines } from "../text/text-table.js";
import { terminalWidth } from "../text/terminal.js";
import { writeError, writeOut } from "../stdio.js";

/** Number of rows if there is no terminal. */
const LINES = 20;
/** q, Q, and Ctrl-C, which is a normal key in the terminal's raw mode. */
const ENDING = new Set([0x71, 0x51, 0x03]);
/** Number of other lines: the summary, an empty line and the titles above the rows, and the prompt below them. */
const FRAME = 4;

/** One service port, or one endpoint. */
interface TopRow {
  readonly service: string;
  readonly port: string;
  readonly family: string;
  /** Undefined for a service port. */
  readonly endpoint: string | undefined;
  readonly connections: number;
  /** From the daemon. Undefined if it has no recent earlier counts. */
  readonly perSecond: number | undefined;
}

interface Sample {
  readonly at: number;
  readonly rows: ReadonlyMap<string, number>;
}

/**
 * Shows a screen every `interval`, until `q` or Ctrl-C, or `count` times. Without a terminal, it prints the screens one after the other, by default
 * one. Exit code 1 if no daemon answers, or nothing is counted. Otherwise exit code 0.
 */
export async function topCommand(words: readonly string[], options: TopOptions): Promise<number> {
  const { isTTY } = process.stdout;
  const { count = isTTY ? Infinity : 1, interval, socket, namespace } = options;
  // The terminal's earlier content returns at the end, so a single screen would not be seen.
  const screen = isTTY && count > 1 ? new Screen() : undefined;
  let last = "";
  try {
    let before: Sample | undefined;
    for (let round = 0; round < count; round++) {
      if (round > 0) await Promise.race([sleep(interval), screen?.ended].filter((one) => one !== undefined));
      if (screen?.isEnded === true) return 0;
      const answers = new DaemonAnswers(socket);
      const list = words.length === 0 ? await answers.services() : await select(answers, words, namespace);
      const rows = topRows(list, words.length === 0 ? namespace : undefined);
      if (rows === undefined) {
        screen?.close();
        writeError(notCounted(words, namespace, list));
        return 1;
      }
      const sample = {
        at: performance.now(),
        rows: new Map(rows.map((row) => [keyOf(row), row.connections])),
      };
      const lines = Math.max(0, (process.stdout.rows || LINES + FRAME) - FRAME);
      const text = topText(rows, { words, sample, before, lines: isTTY ? lines : LINES });
      last = text;
      if (screen !== undefined) screen.show(text);
      else if (!(await writeOut(`${round === 0 ? "" : "\n"}${text}\n`))) return 0;
      before = sample;
    }
    screen?.close();
    if (screen !== undefined) await writeOut(`${last}\n`);
    return 0;
  } finally {
    screen?.close();
  }
}

function notCounted(words: readonly string[], namespace: string | undefined, { items }: ServiceList): string {
  if (namespace !== undefined && !items.some((item) => item.namespace === namespace)) {
    return `no service of namespace ${namespace} is served`;
  }
  if (items.every(({ connections }) => connections === undefined)) {
    return "connections are not counted, because the daemon was started with --service-counters=off or Linux is older than 5.7";
  }
  return `${words.join(", ")} has no endpoints, or their connections are not counted; to count them, start the daemon with --service-counters=endpoint`;
}

/** Returns undefined if nothing is counted. @param namespace of the services. Default: all namespaces. */
export function topRows({ items }: ServiceList, namespace?: string): TopRow[] | undefined {
  const rows = items.flatMap((item): TopRow[] => {
    const { connections, connectionsPerSecond: perSecond } = item;
    if (connections === undefined || item.namespace !== (namespace ?? item.namespace)) return [];
    const port = `${item.port}/${item.protocol}`;
    const row = { service: serviceText(item), port, family: FAMILY_NAMES[item.family], endpoint: undefined };
    if (item.endpoints === undefined) return [{ ...row, connections, perSecond }];
    return item.endpoints.flatMap(({ address, port: own, connections: counted }) => {
      if (counted === undefined) return [];
      return [{ ...row, endpoint: withPort(address, own), connections: counted, perSecond: undefined }];
    });
  });
  return rows.length === 0 ? undefined : rows;
}

/** Identifies a row in all samples. */
export function keyOf({ service, port, family, endpoint }: TopRow): string {
  return [service, port, family, endpoint].join(" ");
}

interface View {
  /** Names of services. Empty: all services. */
  readonly words: readonly string[];
  readonly sample: Sample;
  readonly before: Sample | undefined;
  readonly lines: number;
}

const COLUMNS: readonly Column<TopRow & { readonly rate: number | undefined }>[] = [
  { title: "SERVICE", text: ({ service }) => service },
  { title: "PORT", drop: 2, text: ({ port }) => port },
  { title: "FAMILY", drop: 1, text: ({ family }) => family },
  { title: "ENDPOINT", optional: true, text: ({ endpoint = "" }) => endpoint },
  { title: "RATE", text: ({ rate }) => rateText(rate) || "-" },
  { title: "CONNECTIONS", text: ({ connections }) => String(connections) },
];

/** Shows the rows with the highest rates, and at equal rates those with the most connections. */
export function topText(rows: readonly TopRow[], { words, sample, before, lines }: View): string {
  const rated = rows
    .map((row) => ({ ...row, rate: rateOf(row, sample, before) }))
    .sort((a, b) => (b.rate ?? -1) - (a.rate ?? -1) || b.connections - a.connections);
  const total = rated.reduce((sum, { rate = 0 }) => sum + rate, 0);
  const shown = rated.slice(0, lines);
  const table = tableLines(COLUMNS, shown, { headers: true, width: terminalWidth() });
  const hidden = rows.length - shown.length;
  const many = counted(rows.length, words.length === 0 ? "service port" : "endpoint");
  const of = `${many}${words.length === 0 ? "" : ` of ${words.join(", ")}`}${hidden === 0 ? "" : ` (${hidden} not shown)`}`;
  const head = `${of}; new connections: ${rateText(total)}${before === undefined ? "" : " since the previous screen"}`;
  return [printable(head), "", ...table].join("\n");
}

function rateOf(row: TopRow, sample: Sample, before: Sample | undefined): number | undefined {
  if (before === undefined) return row.perSecond;
  const former = before.rows.get(keyOf(row));
  // A new counter, or one that restarted from zero, has no rate yet.
  if (former === undefined || row.connections < former) return undefined;
  return ((row.connections - former) / (sample.at - before.at)) * 1000;
}

/** The terminal's alternate screen, so that the earlier content returns at the end. */
class Screen {
  readonly ended: Promise<void>;
  isEnded = false;
  #open = true;
  readonly #end = Promise.withResolvers<void>();

  constructor() {
    this.ended = this.#end.promise;
    process.stdout.write("\x1b[?1049h\x1b[?25l");
    if (process.stdin.isTTY) process.stdin.setRawMode(true);
    process.stdin.on("data", this.#onKey).resume();
    process.once("SIGINT", this.#stop).once("SIGTERM", this.#stop);
  }

  show(text: string): void {
    const lines = text.split("\n").map((line) => line.slice(0, process.stdout.columns || undefined));
    // Titles are bold, as in similar programs. See https://no-color.org
    const plain = process.env["NO_COLOR"] !== undefined && process.env["NO_COLOR"] !== "";
    if (!plain && lines[2] !== undefined) lines[2] = `\x1b[1m${lines[2]}\x1b[22m`;
    process.stdout.write(`\x1b[H${lines.join("\x1b[K\r\n")}\x1b[K\x1b[J`);
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    process.stdin.off("data", this.#onKey).pause();
    if (process.stdin.isTTY) process.stdin.setRawMode(false);
    process.off("SIGINT", this.#stop).off("SIGTERM", this.#stop);
    process.stdout.write("\x1b[?25h\x1b[?1049l");
  }

  readonly #onKey = (keys: Buffer): void => {
    if (keys.some((key) => ENDING.has(key))) this.#stop();
  };

  readonly #stop = (): void => {
    this.isEnded = true;
    this.#end.resolve();
  };
}
