/** The status of this node: its problems first, then the facts that say something. */
import { counted } from "../../base/counted.js";
import { durationText } from "../../base/duration-text.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { percentText } from "../../base/percent.js";
import { repairText } from "../../observe/repair-text.js";
import {
  type ApiStatus,
  type FamilyStatus,
  type LastRepair,
  nodePortPlaces,
  type StatusEvent,
  type StatusProblem,
  type StatusReport,
} from "../../observe/status-report.js";
import type { KernelStatus } from "../answers/kernel-answers.js";
import type { Column } from "./text-table.js";
import { factLines, wrap } from "./terminal.js";

/** Singular and plural names of the elements of the kernel's maps. */
const [ENTRY, ENTRIES] = ["VIP or node port", "VIPs and node ports"] as const;

/** A repair this long ago, ms, says nothing about the number of repairs now. */
const REPAIRS_MS = 600_000;

export const EVENT_COLUMNS: readonly Column<StatusEvent>[] = [
  { title: "TIME", text: ({ at }) => new Date(at).toISOString() },
  { title: "TYPE", text: ({ type }) => type },
  { title: "EVENT", text: ({ message }) => message },
];

export function statusLines(report: StatusReport | KernelStatus, now = Date.now()): string[] {
  return report.kind === "Status" ? daemonLines(report, now) : kernelLines(report);
}

/** Begins with "OK" or with the worst problem. */
function problemLines(problems: readonly StatusProblem[]): string[] {
  if (problems.length === 0) return ["OK"];
  return problems.flatMap(({ what, remedy }) => [...wrap(`PROBLEM  ${what}`, 9), ...wrap(`         ${remedy}`, 9)]);
}

function daemonLines(report: StatusReport, now: number): string[] {
  const { problems, families, version, kernel, nodeName, uptimeMs, ignored, lastRepair } = report;
  const { api, conntrack, missingFeatures, pendingServices, notes = [] } = report;
  const facts = factLines([
    ["node", nodeName],
    ["daemon", `nft-proxier ${version}, up ${durationText(uptimeMs)}, Linux ${kernel}`],
    ["API server", apiText(api)],
    ...families.map((family) => [FAMILY_NAMES[family.family], familyText(family)] as const),
    ["pending changes", pendingServices === 0 ? undefined : counted(pendingServices, "service")],
    ...families.map((family) => [`${FAMILY_NAMES[family.family]} node ports`, nodePortsText(family)] as const),
    ["conntrack", conntrack && fillText(conntrack)],
    ["other programs", firewallText(report)],
    ["missing kernel features", missingFeatures.join("; ") || undefined],
    [
      "ignored objects",
      ignored === 0
        ? undefined
        : counted(ignored, "object or field cannot be served", "objects or fields cannot be served"),
    ],
    ["last repair", lastRepair && lastRepairText(lastRepair, now)],
    ...notes.map((note) => ["under way", note] as const),
    ["health", healthText(report)],
  ]);
  return [...problemLines(problems), "", ...facts];
}

function lastRepairText(repair: LastRepair, now: number): string {
  const text = repairText(repair, ` ${durationText(now - repair.at)} ago`);
  const isOld = now - repair.at >= REPAIRS_MS;
  return repair.times === 1 || isOld ? text : `${text}; ${repair.times} repairs in all in the 10 minutes before`;
}

function apiText(api: ApiStatus | undefined): string {
  if (api === undefined) return "not used: objects come from manifests";
  const { server, connected, silentMs } = api;
  const heard = silentMs === undefined ? "no answer yet" : `last answer ${durationText(silentMs)} ago`;
  return `${server}: ${connected ? "connected" : "not connected"}, ${heard}`;
}

function nodePortsText(family: FamilyStatus): string {
  const places = nodePortPlaces(family);
  return places === undefined ? "unknown until the first write" : `on ${places}`;
}

function fillText({ entries, max }: NonNullable<StatusReport["conntrack"]>): string {
  return `${entries} of ${counted(max, "entry", "entries")} (${percentText(entries, max)})`;
}

/** Returns the parts that were not checked or not judged. Returns undefined if no other program's rules affect services. */
function firewallText({ firewalls: check, families }: StatusReport): string | undefined {
  // The check of their rules needs packets to services, and no services are known before the first write.
  if (check === undefined && !families.some(({ inForce }) => inForce))
    return "not checked, because no services are known yet";
  if (check === undefined) return undefined;
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

function healthText({ healthy, healthz }: StatusReport): string {
  if (healthz === undefined) return healthy ? "ok (no health port)" : "changes have been pending for too long";
  const { code, reason } = healthz;
  return reason === undefined ? `ok (/healthz ${code})` : `/healthz ${code}: ${reason}`;
}

function familyText({ inForce, services, endpoints, pendingMs, kernelEntries }: FamilyStatus): string {
  if (kernelEntries !== undefined) {
    return `not written since startup; the kernel serves ${counted(kernelEntries, ENTRY, ENTRIES)} of an earlier run`;
  }
  const pending = pendingMs === 0 ? "" : `, changes pending for ${durationText(pendingMs)}`;
  return `${inForce ? "active" : "not written"}: ${counted(services, "service")}, ${counted(endpoints, "endpoint")}${pending}`;
}

function kernelLines({ families, conntrack, problems }: KernelStatus): string[] {
  const facts = factLines([
    ...families.map(
      ({ family, inForce, entries }) =>
        [FAMILY_NAMES[family], inForce ? `active: ${counted(entries, ENTRY, ENTRIES)}` : "no table"] as const,
    ),
    ["conntrack", conntrack && fillText(conntrack)],
  ]);
  return [...problemLines(problems), "", ...facts];
}
