import { setTimeout as sleep } from "node:timers/promises";
import { linesText } from "../../base/columns.js";
import type { StatusEvent, StatusReport } from "../../observe/status-report.js";
import { askDaemonOrKernel } from "../answers/ask-daemon-or-kernel.js";
import { DaemonAnswers } from "../answers/daemon-answers.js";
import type { KernelStatus } from "../answers/kernel-answers.js";
import type { StatusOptions } from "./question-commands.js";
import { UserError, writeOut } from "../stdio.js";
import { EVENT_COLUMNS, statusLines } from "../text/status-text.js";
import { structuredText } from "../text/structured-text.js";
import { tableLines } from "../text/text-table.js";
import { fitted } from "../text/terminal.js";

const LACKING = "names, states of endpoints, pending or refused changes, or events";
/** Time between two requests with `--watch`, ms. */
const WATCH_MS = 2000;

/**
 * `status`: prints one screen, problems first. Exit code 0 if there are no problems, otherwise 1. It is a problem if no daemon answers. The
 * screen then shows what the kernel knows.
 */
export async function statusCommand(options: StatusOptions): Promise<number> {
  const { output, events = false, watch = false, socket } = options;
  if (watch && output !== "text") throw new UserError(`--watch cannot be combined with -o ${output}`);
  if (watch) return events ? watchEvents(socket) : watchStatus(socket);
  if (events) {
    const list = await new DaemonAnswers(socket).events();
    await writeOut(output === "text" ? eventText(list.items) : await structuredText(list, output));
    return 0;
  }
  const report = await askStatus(socket);
  await writeOut(output === "text" ? linesText(statusLines(report)) : await structuredText(report, output));
  return report.problems.length === 0 ? 0 : 1;
}

function askStatus(socket: string | undefined): Promise<StatusReport | KernelStatus> {
  return askDaemonOrKernel<StatusReport | KernelStatus>(
    socket,
    LACKING,
    (answers) => answers.status(),
    async (kernel, away) => (await import("../answers/kernel-answers.js")).kernelStatus(kernel, away),
  );
}

function eventText(items: readonly StatusEvent[]): string {
  if (items.length === 0) return "no events since startup\n";
  return fitted(linesText(tableLines(EVENT_COLUMNS, items, { headers: false, width: undefined })));
}

/** Prints the status, and again whenever its problems change. Ends with Ctrl-C, or if the output's reader is gone. */
async function watchStatus(socket: string | undefined): Promise<number> {
  for (let shown: string | undefined; ; await sleep(WATCH_MS)) {
    const report = await askStatus(socket);
    const now = JSON.stringify(report.problems);
    if (now === shown) continue;
    const head = shown === undefined ? [] : ["", new Date().toISOString()];
    if (!(await writeOut(linesText([...head, ...statusLines(report)])))) return 0;
    shown = now;
  }
}

/** Prints the events, and then each new one. */
async function watchEvents(socket: string | undefined): Promise<number> {
  const answers = new DaemonAnswers(socket);
  const shown = new Set<string>();
  for (; ; await sleep(WATCH_MS)) {
    const { items } = await answers.events();
    const added = items.filter((event) => !shown.has(JSON.stringify(event)));
    if (added.length > 0 && !(await writeOut(eventText(added)))) return 0;
    shown.clear();
    for (const event of items) shown.add(JSON.stringify(event));
  }
}
