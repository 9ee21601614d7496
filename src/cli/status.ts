import { ask, DaemonAway, NotFound } from "../control/client.js";
import { defaultSocketPath } from "../control/socket-path.js";
import type { EventList, FamilyStatus, StatusReport } from "../control/types.js";
import { columns } from "../base/columns.js";
import type { StatusOptions } from "./options.js";
import { UserError, writeOut } from "./stdio.js";

const FAMILY = { ip: "IPv4", ip6: "IPv6" } as const;

/** The daemon's answer. Rejects with a UserError where it is away, or knows nothing of it. */
export async function answerOf<T>(socket: string | undefined, ...path: readonly string[]): Promise<T> {
  try {
    return (await ask(socket ?? defaultSocketPath(), ...path)) as T;
  } catch (error) {
    if (error instanceof DaemonAway || error instanceof NotFound) throw new UserError(error.message, { cause: error });
    throw error;
  }
}

/** `status`: one screen, problems first. Exit code 0: there are none; 1: there are, or no daemon answers. */
export async function statusCommand({ output, events = false, socket }: StatusOptions): Promise<number> {
  if (events) {
    const list = await answerOf<EventList>(socket, "events");
    await writeOut(output === "json" ? jsonText(list) : eventText(list));
    return 0;
  }
  const report = await answerOf<StatusReport>(socket, "status");
  await writeOut(output === "json" ? jsonText(report) : statusText(report));
  return report.problems.length === 0 ? 0 : 1;
}

export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

function eventText({ items }: EventList): string {
  if (items.length === 0) return "no events since the start\n";
  const rows = items.map(({ at, type, message }) => [new Date(at).toISOString(), type, message]);
  return `${columns(rows).join("\n")}\n`;
}

export function statusText(report: StatusReport, now = Date.now()): string {
  const { problems, families, version, kernel, nodeName, uptimeMs, ignored, lastRepair } = report;
  const lines = problems.flatMap(({ what, remedy }) => [`PROBLEM  ${what}`, `         ${remedy}`]);
  if (lines.length > 0) lines.push("");
  const by = lastRepair === undefined || lastRepair.by.length === 0 ? "another process" : lastRepair.by.join(", ");
  const repair =
    lastRepair === undefined
      ? "none since the start"
      : `${FAMILY[lastRepair.family]}, ${durationText(now - lastRepair.at)} ago, by ${by}: ` +
        `${lastRepair.changes.slice(0, 3).join(", ")}; undone in ${Math.round(lastRepair.ms)} ms`;
  const rows = [
    ["node", nodeName],
    ["daemon", `nft-proxier ${version}, up ${durationText(uptimeMs)}, Linux ${kernel}`],
    ...families.map((family) => [FAMILY[family.family], familyText(family)]),
    ["ignored", ignored === 0 ? "nothing" : `${ignored} objects or fields cannot be served`],
    ["last change by others", repair],
    ["health", report.healthy ? "ok" : "changes have waited too long"],
  ];
  return `${[...lines, ...columns(rows)].join("\n")}\n`;
}

function familyText({ inForce, services, endpoints, pendingMs }: FamilyStatus): string {
  const pending = pendingMs === 0 ? "nothing pending" : `pending for ${durationText(pendingMs)}`;
  return `${inForce ? "in force" : "not written"}: ${services} services, ${endpoints} endpoints, ${pending}`;
}

/** "3d4h", "2h5m", "17s", "250ms": the two largest units, as kubectl has it. */
export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const units: readonly (readonly [string, number])[] = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
    ["s", 1000],
  ];
  const first = units.findIndex(([, size]) => ms >= size);
  let left = ms;
  let text = "";
  for (const [unit, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) text += `${count}${unit}`;
  }
  return text;
}
