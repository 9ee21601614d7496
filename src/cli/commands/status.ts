import { counted } from "../../base/counted.js";
import { percentText } from "../../base/percent.js";
import { durationText } from "../../base/duration-text.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { ask, askForItems, DaemonAway, NotFound, ofThisVersion } from "../../daemon/control/client.js";
import { defaultSocketPath } from "../../daemon/control/socket-path.js";
import {
  type ApiStatus,
  type EventList,
  type FamilyStatus,
  nodePortPlaces,
  type StatusProblem,
  type StatusReport,
} from "../../observe/status-report.js";
import { repairText } from "../../observe/repair-text.js";
import type { Kernel } from "../../netlink/kernel.js";
import { columns, linesText } from "../../base/columns.js";
import type { KernelStatus } from "../answers/kernel-view.js";
import type { StatusOptions } from "../options.js";
import { UserError, writeError, writeOut } from "../stdio.js";

/** Singular and plural names of the elements of the kernel's maps. */
const [ENTRY, ENTRIES] = ["VIP or node port", "VIPs and node ports"] as const;

/** Returns the daemon's answer. Rejects with UserError if the daemon is away, has another version, or does not know the object. */
export async function answerOf<T>(socket: string | undefined, ...path: readonly string[]): Promise<T> {
  const at = socket ?? defaultSocketPath();
  const answer = ask(at, ...path).then((one) => ofThisVersion(one, at));
  return (await answer.catch(explained)) as T;
}

/** Like answerOf, for a list. Passes items on as they come, and resolves to the answer without them. */
export async function itemsOf(
  socket: string | undefined,
  path: readonly string[],
  onItems: (items: readonly unknown[]) => void,
): Promise<object> {
  const at = socket ?? defaultSocketPath();
  const answer = askForItems(at, path, onItems).then((list) => ofThisVersion(list, at));
  return answer.catch(explained);
}

function explained(error: unknown): never {
  if (error instanceof DaemonAway || error instanceof NotFound) throw new UserError(error.message, { cause: error });
  throw error;
}

/**
 * Returns the answer of `daemon`. If no daemon answers, returns the answer from the kernel, and writes `lacking` to stderr. A user who may not ask
 * the daemon may not ask the kernel either.
 */
export async function answerOrKernel<T, K>(
  daemon: () => Promise<T>,
  lacking: string,
  fallback: (kernel: Kernel, away: string) => Promise<K>,
): Promise<{ readonly daemon: T } | { readonly kernel: K }> {
  try {
    return { daemon: await daemon() };
  } catch (error) {
    if (!(error instanceof UserError) || !(error.cause instanceof DaemonAway) || !error.cause.absent) throw error;
    const { openKernel } = await import("../open-kernel.js");
    const kernel = await openKernel();
    try {
      const answer = await fallback(kernel, error.message);
      writeError(`${error.message} The kernel alone does not show ${lacking}.`);
      return { kernel: answer };
    } finally {
      await kernel.close();
    }
  }
}

/**
 * `status`: prints one screen, problems first. Exit code 0 if there are no problems, otherwise 1. It is a problem if no daemon answers. The
 * screen then shows what the kernel knows.
 */
export async function statusCommand({ output, events = false, socket }: StatusOptions): Promise<number> {
  if (events) {
    const list = await answerOf<EventList>(socket, "events");
    await writeOut(output === "json" ? jsonText(list) : eventText(list));
    return 0;
  }
  const lacking = "names, states of endpoints, pending or refused changes, or events";
  const answer = await answerOrKernel(
    () => answerOf<StatusReport>(socket, "status"),
    lacking,
    async (kernel, away) => (await import("../answers/kernel-view.js")).kernelStatus(kernel, away),
  );
  const report = "daemon" in answer ? answer.daemon : answer.kernel;
  if (output === "json") await writeOut(jsonText(report));
  else await writeOut(report.kind === "Status" ? statusText(report) : kernelStatusText(report));
  return report.problems.length === 0 ? 0 : 1;
}

export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

function eventText({ items }: EventList): string {
  if (items.length === 0) return "no events since startup\n";
  const rows = items.map(({ at, type, message }) => [new Date(at).toISOString(), type, message]);
  return linesText(columns(rows));
}

export function statusText(report: StatusReport, now = Date.now()): string {
  const { problems, families, version, kernel, nodeName, uptimeMs, ignored, lastRepair } = report;
  const { api, conntrack, missingFeatures, pendingServices, notes = [] } = report;
  const lines = problemLines(problems);
  const repair =
    lastRepair === undefined
      ? "none since startup"
      : repairText(lastRepair, ` ${durationText(now - lastRepair.at)} ago`);
  const rows = [
    ["node", nodeName],
    ["daemon", `nft-proxier ${version}, up ${durationText(uptimeMs)}, Linux ${kernel}`],
    ["API server", apiText(api)],
    ...families.map((family) => [FAMILY_NAMES[family.family], familyText(family)]),
    ["pending changes", pendingServices === 0 ? "none" : counted(pendingServices, "service")],
    ...families.map((family) => [`${FAMILY_NAMES[family.family]} node ports`, nodePortsText(family)]),
    ["conntrack", fillText(conntrack)],
    ["other programs", firewallText(report)],
    ["missing kernel features", missingFeatures.length === 0 ? "none" : missingFeatures.join("; ")],
    [
      "ignored objects",
      ignored === 0
        ? "none"
        : counted(ignored, "object or field cannot be served", "objects or fields cannot be served"),
    ],
    ["last repair", repair],
    ...notes.map((note) => ["under way", note]),
    ["health", healthText(report)],
  ];
  return linesText([...lines, ...columns(rows)]);
}

function problemLines(problems: readonly StatusProblem[]): string[] {
  const lines = problems.flatMap(({ what, remedy }) => [`PROBLEM  ${what}`, `         ${remedy}`]);
  return lines.length > 0 ? [...lines, ""] : [];
}

function apiText(api: ApiStatus | undefined): string {
  if (api === undefined) return "none: objects come from manifests";
  const { server, connected, silentMs } = api;
  const heard = silentMs === undefined ? "no answer yet" : `last answer ${durationText(silentMs)} ago`;
  return `${server}: ${connected ? "connected" : "not connected"}, ${heard}`;
}

function nodePortsText(family: FamilyStatus): string {
  const places = nodePortPlaces(family);
  return places === undefined ? "unknown until the first write" : `on ${places}`;
}

function fillText(fill: StatusReport["conntrack"]): string {
  if (fill === undefined) return "not loaded";
  const { entries, max } = fill;
  return `${entries} of ${counted(max, "entry", "entries")} (${percentText(entries, max)})`;
}

/** Also reports the parts that were not checked. */
function firewallText({ firewalls: check, families }: StatusReport): string {
  // The check of their rules needs packets to services, and no services are known before the first write.
  if (check === undefined && !families.some(({ inForce }) => inForce))
    return "not checked, because no services are known yet";
  if (check === undefined) return "none block services";
  const { checked, services, unjudged, unjudgedRule, unread } = check;
  const parts = [`${checked} of ${counted(services, "service")} checked`];
  if (unjudged > 0) {
    parts.push(
      `for ${unjudged} the result depends on the client or on facts that are not visible here, as in this rule: ${unjudgedRule ?? ""}`,
    );
  }
  if (unread.length > 0) parts.push(`not checked: ${unread.join(", ")}`);
  return parts.join("; ");
}

function kernelStatusText({ families, conntrack, problems }: KernelStatus): string {
  const rows = [
    ...families.map(({ family, inForce, entries }) => [
      FAMILY_NAMES[family],
      inForce ? `active: ${counted(entries, ENTRY, ENTRIES)}` : "no table",
    ]),
    ["conntrack", fillText(conntrack)],
  ];
  return linesText([...problemLines(problems), ...columns(rows)]);
}

function healthText({ healthy, healthz }: StatusReport): string {
  if (healthz === undefined) return healthy ? "ok (no health port)" : "changes have been pending for too long";
  const { code, reason } = healthz;
  return reason === undefined ? `ok (/healthz ${code})` : `/healthz ${code}: ${reason}`;
}

function familyText({ inForce, services, endpoints, pendingMs, kernelEntries }: FamilyStatus): string {
  if (kernelEntries !== undefined) {
    return `not written since startup; the kernel serves ${counted(kernelEntries, ENTRY, ENTRIES)} of an earlier run`;
  }
  const pending = pendingMs === 0 ? "no changes pending" : `changes pending for ${durationText(pendingMs)}`;
  return `${inForce ? "active" : "not written"}: ${counted(services, "service")}, ${counted(endpoints, "endpoint")}, ${pending}`;
}
