/** Services and their endpoints as tables and descriptions. */
import { counted } from "../../base/counted.js";
import { durationText } from "../../base/duration-text.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { withPort } from "../../base/ip.js";
import { annotationTexts, annotationWords } from "../../daemon/answers/annotation-text.js";
import { vipsOf } from "../../model/service-address.js";
import { type EndpointStatus, type ServicePortStatus, serviceText } from "../../observe/status-report.js";
import type { KernelService } from "../answers/kernel-answers.js";
import { REFUSAL_REASONS, type RefusalReason } from "../../ruleset/refusals.js";
import { type Column, tableLines, type TableOptions } from "./text-table.js";
import { factLines, wrap } from "./terminal.js";

const numberText = (value: number | undefined): string => (value === undefined ? "" : String(value));

/** Formats a rate of new connections: "12/s", "12/s in the last 15s", or "" if it is unknown. */
export function rateText(perSecond: number | undefined, ms?: number): string {
  if (perSecond === undefined) return "";
  const rate = `${perSecond.toFixed(perSecond > 0 && perSecond < 10 ? 1 : 0)}/s`;
  return ms === undefined ? rate : `${rate} in the last ${durationText(ms)}`;
}

const SERVICE: Column<ServicePortStatus> = { title: "SERVICE", text: serviceText };
const PORT: Column<ServicePortStatus> = { title: "PORT", text: ({ port, protocol }) => `${port}/${protocol}` };

/** One line per service port. */
export const SERVICE_COLUMNS: readonly Column<ServicePortStatus>[] = [
  SERVICE,
  PORT,
  { title: "ADDRESS", drop: 6, wide: false, text: firstAddress },
  { title: "ADDRESSES", wide: true, text: (item) => vipsOf(item).join(",") },
  { title: "NODE PORT", drop: 3, text: ({ nodePort }) => (nodePort === 0 ? "" : String(nodePort)) },
  { title: "POLICY", drop: 2, text: policyText },
  { title: "READY", text: ({ ready, total }) => `${ready}/${total}` },
  { title: "CONNECTIONS", drop: 1, text: ({ connections }) => numberText(connections) },
  { title: "RATE", drop: 4, text: ({ connectionsPerSecond }) => rateText(connectionsPerSecond) },
  { title: "STATE", text: ({ state }) => state },
  { title: "ANNOTATIONS", wide: true, text: annotationWords },
  { title: "REASON", wide: true, text: ({ reason = "" }) => reason },
];

/** One line per VIP or node port in the kernel's maps. */
export const KERNEL_COLUMNS: readonly Column<KernelService>[] = [
  { title: "ADDRESS", text: kernelAddress },
  { title: "PROTOCOL", text: ({ protocol }) => protocol },
  { title: "LIST", text: ({ list }) => list },
  { title: "READY", text: ({ endpoints }) => numberText(endpoints) },
];

export function kernelAddress({ family, address, port }: KernelService): string {
  return address === "" ? `node port ${port} (${FAMILY_NAMES[family]})` : withPort(address, port);
}

/** Returns text such as "10.96.0.10 +2". */
function firstAddress(item: ServicePortStatus): string {
  const [first = "", ...others] = vipsOf(item);
  return others.length === 0 ? first : `${first} +${others.length}`;
}

/** Returns "Cluster", or which of the two policies is Local. */
function policyText({ internalTrafficPolicy, externalTrafficPolicy }: ServicePortStatus): string {
  const [inside, outside] = [internalTrafficPolicy === "Local", externalTrafficPolicy === "Local"];
  if (inside && outside) return "Local";
  if (inside) return "internal Local";
  return outside ? "external Local" : "Cluster";
}

interface Endpoint extends EndpointStatus {
  /** The service port to which it belongs. */
  readonly of: ServicePortStatus;
}

const ENDPOINT_COLUMNS: readonly Column<Endpoint>[] = [
  { title: "ENDPOINT", text: ({ address, port }) => withPort(address, port) },
  { title: "POD", optional: true, drop: 9, text: ({ pod = "" }) => pod },
  { title: "NODE", optional: true, drop: 5, text: ({ node = "" }) => node },
  { title: "ZONE", optional: true, drop: 3, text: ({ zone = "" }) => zone },
  { title: "HINTS", optional: true, drop: 4, text: hintText },
  { title: "LOCAL", drop: 2, text: ({ local }) => (local ? "yes" : "no") },
  { title: "STATE", text: stateText },
  { title: "SHARE", drop: 6, text: ({ clusterShare }) => shareText(clusterShare) },
  {
    title: "LOCAL SHARE",
    optional: true,
    drop: 1,
    text: (endpoint) => (hasLocalPolicy(endpoint.of) ? shareText(endpoint.localShare) : ""),
  },
  { title: "CONNECTIONS", optional: true, drop: 0, text: ({ connections }) => numberText(connections) },
  { title: "OPEN", optional: true, drop: 8, text: ({ open }) => numberText(open) },
  { title: "REFUSED", optional: true, text: ({ refused }) => numberText(refused) },
  { title: "UNANSWERED", optional: true, text: ({ unanswered = 0 }) => (unanswered === 0 ? "" : String(unanswered)) },
  { title: "HALF OPEN", optional: true, drop: 7, text: ({ halfOpen }) => numberText(halfOpen) },
];

function hasLocalPolicy({ internalTrafficPolicy, externalTrafficPolicy }: ServicePortStatus): boolean {
  return internalTrafficPolicy === "Local" || externalTrafficPolicy === "Local";
}

/** Returns text such as "zone=a,zone=b". */
function hintText({ forNodes = [], forZones = [] }: EndpointStatus): string {
  return [...forNodes.map((name) => `node=${name}`), ...forZones.map((name) => `zone=${name}`)].join();
}

/** Returns the endpoint's true conditions: "ready,serving". */
function stateText(endpoint: EndpointStatus): string {
  const conditions = (["ready", "serving", "terminating", "draining"] as const).filter(
    (name) => endpoint[name] === true,
  );
  return conditions.join() || "not ready";
}

function shareText(of: number): string {
  return of === 0 ? "" : `${(of * 100).toFixed(of < 0.1 ? 1 : 0)} %`;
}

function endpointsOf(items: readonly ServicePortStatus[]): Endpoint[] {
  return items.flatMap((of) => (of.endpoints ?? []).map((endpoint) => ({ ...endpoint, of })));
}

/** Describes each port: its state and the reason first, then its settings, then its endpoints. */
export function describeLines(items: readonly ServicePortStatus[], options: TableOptions): string[] {
  const lines = items.flatMap((item) => {
    const { port, protocol, family, state, reason, nodePort, connections, connectionsPerSecond: rate, rateMs } = item;
    const title = `${serviceText(item)} ${port}/${protocol} ${FAMILY_NAMES[family]}: ${state}`;
    const addresses = [...vipsOf(item), ...(nodePort === 0 ? [] : [`node port ${nodePort}`])];
    const { internalTrafficPolicy: internal, externalTrafficPolicy: external } = item;
    const facts = factLines(
      [
        ["reason", reason],
        ["addresses", addresses.join(", ")],
        ["policies", `internal ${internal}, external ${external}`],
        ["affinity", item.affinitySeconds === 0 ? undefined : durationText(item.affinitySeconds * 1000)],
        ...annotationTexts(item),
        [
          "connections",
          connections === undefined ? undefined : [connections, rateText(rate, rateMs)].filter(String).join(", "),
        ],
        ["refused", refusalsText(item)],
        ["endpoints", `${item.ready} of ${item.total} ready`],
      ],
      "  ",
    );
    const endpoints = tableLines(ENDPOINT_COLUMNS, endpointsOf([item]), inner(options));
    return [
      "",
      ...wrap(title, 2, options.width),
      ...facts,
      ...(endpoints.length > 1 ? endpoints.map((line) => `  ${line}`) : []),
    ];
  });
  return [...lines.slice(1), ...(options.headers ? remainingLines(items) : [])];
}

const REASONS: Readonly<Record<RefusalReason, string>> = {
  endpoint: "by endpoints",
  "no-endpoint": "for lack of an endpoint",
  "no-local-endpoint": "dropped, because no endpoint is on this node",
  "source-ranges": "dropped by source ranges",
  limits: "by limits",
};

/** Returns text such as "12 by endpoints (the last 3s ago), 3 dropped by source ranges (the last 4m ago)". */
function refusalsText(item: ServicePortStatus): string | undefined {
  const { refusals = {}, refusalAgesMs = {}, refusalsIncomplete } = item;
  const parts = REFUSAL_REASONS.flatMap((reason) => {
    const [count, agoMs] = [refusals[reason], refusalAgesMs[reason]];
    const last = agoMs === undefined ? "" : ` (the last ${durationText(agoMs)} ago)`;
    return count === undefined ? [] : [`${count} ${REASONS[reason]}${last}`];
  });
  if (refusalsIncomplete === true) parts.push("perhaps more: too many addresses were refused to count all");
  return parts.join(", ") || undefined;
}

function inner(options: TableOptions): TableOptions {
  return options.width === undefined ? options : { ...options, width: options.width - 2 };
}

/** Returns one table of the endpoints of all ports. */
export function endpointLines(items: readonly ServicePortStatus[], options: TableOptions): string[] {
  const [service, port] = [SERVICE, PORT].map((column) => ({ ...column, text: ({ of }: Endpoint) => column.text(of) }));
  const endpoints = endpointsOf(items);
  if (endpoints.length === 0) return [];
  return [
    "",
    ...tableLines([service, port, ...ENDPOINT_COLUMNS], endpoints, options),
    ...(options.headers ? remainingLines(items) : []),
  ];
}

/** Returns how many connections the terminating endpoints still have. */
function remainingLines(items: readonly ServicePortStatus[]): string[] {
  const ending = endpointsOf(items).filter(({ terminating, open }) => terminating && open !== undefined);
  if (ending.length === 0) return [];
  const sum = (of: "open" | "halfOpen"): number => ending.reduce((all, endpoint) => all + (endpoint[of] ?? 0), 0);
  const which = counted(ending.length, "terminating endpoint");
  return ["", `${which} with ${sum("open")} open and ${counted(sum("halfOpen"), "half-open connection")}`];
}
