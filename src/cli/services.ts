import { setTimeout as sleep } from "node:timers/promises";
import type { EndpointStatus, ServiceList, ServicePortStatus } from "../control/types.js";
import { columns } from "../base/columns.js";
import type { ServicesOptions } from "./options.js";
import { answerOf, jsonText } from "./status.js";
import { UserError, writeOut } from "./stdio.js";

/**
 * `services [NS/NAME]`: what is in force, by the daemon, or without names by the kernel alone. Exit code 0; 1 when nothing is in force, the
 * service that is named is not served, or no daemon answers that knows names.
 */
export async function servicesCommand(name: string | undefined, options: ServicesOptions): Promise<number> {
  const { output, headers = true, watch = false, socket } = options;
  if (watch) return watchServices(name, options);
  if (name === undefined) {
    const { allServices } = await import("./kernel-services.js");
    await writeOut(await allServices(options, (list) => textOf(list, output, headers)));
    return 0;
  }
  const { withConnections } = await import("./endpoint-connections.js");
  const list = await withConnections(await servicesOf(name, socket));
  await writeOut(await textOf(list, output, headers));
  return 0;
}

/** All services, or the one that is named "NAMESPACE/NAME" with its endpoints, as the daemon answers. */
export function servicesOf(name: string | undefined, socket: string | undefined): Promise<ServiceList> {
  return listOf(socket, name === undefined ? [] : serviceName(name));
}

/** Between two looks, ms. */
const WATCH_MS = 2000;

/** As `kubectl get -w`: the table, then each line that comes to be another. Ends with Ctrl-C, or with the daemon. */
async function watchServices(
  name: string | undefined,
  { output, headers = true, socket }: ServicesOptions,
): Promise<number> {
  if (output !== "table" && output !== "wide") throw new UserError(`--watch prints lines: not with -o ${output}`);
  const wide = output === "wide";
  let shown = new Map<string, string>();
  for (let first = true; ; first = false) {
    const { items } = await servicesOf(name, socket);
    const rows = items.map((item) => ({ cells: rowOf(item, wide), key: keyOf(item), state: stateOf(item, wide) }));
    const now = new Map(rows.map(({ key, state }) => [key, state]));
    const gone = [...shown.keys()].filter((key) => !now.has(key)).map((key) => [...key.split(" "), "gone"]);
    const changed = rows.filter(({ key, state }) => shown.get(key) !== state).map(({ cells }) => cells);
    const lines = columns([titleOf(wide), ...changed]).slice(first && headers ? 0 : 1);
    if (lines.length + gone.length > 0)
      await writeOut([...lines, ...gone.map((words) => words.join("  ")), ""].join("\n"));
    shown = now;
    await sleep(WATCH_MS);
  }
}

function keyOf({ namespace, name, portName, port, protocol, family }: ServicePortStatus): string {
  return `${namespace}/${name}${portName === "" ? "" : `:${portName}`} ${port}/${protocol} ${family}`;
}

/** What a line says but for connections. */
function stateOf({ connections: _, connectionsPerSecond: __, ...item }: ServicePortStatus, wide: boolean): string {
  return rowOf(item, wide).join(" ");
}

/** "namespace/name"; "name" is the namespace default's, as with kubectl. */
function serviceName(text: string): readonly [string, string] {
  const words = text.split("/");
  if (words.length > 2 || words.some((word) => word === "")) {
    throw new UserError(`${text}: a service is named NAMESPACE/NAME`);
  }
  return words.length === 1 ? ["default", words[0]] : [words[0], words[1]];
}

async function listOf(socket: string | undefined, path: readonly string[]): Promise<ServiceList> {
  try {
    return await answerOf<ServiceList>(socket, "services", ...path);
  } catch (error) {
    if (!(error instanceof UserError) || !error.message.startsWith("services/")) throw error;
    const hint = "it does not exist, has no ClusterIP, or is headless; `nft-proxier services` lists what is served";
    throw new UserError(`${path.join("/")} is not served: ${hint}`, { cause: error });
  }
}

export async function textOf(list: ServiceList, format: ServicesOptions["output"], headers: boolean): Promise<string> {
  const { items } = list;
  if (format === "json") return jsonText(list);
  if (format === "yaml") return (await import("yaml")).stringify(list);
  if (format === "name") {
    return [...new Set(items.map(({ namespace, name }) => `service/${namespace}/${name}\n`))].join("");
  }
  const wide = format === "wide";
  const title = titleOf(wide);
  const rows = items.map((item) => rowOf(item, wide));
  const lines = columns(headers ? [title, ...rows] : rows);
  if (items.length === 0 && headers) return "no services are served\n";
  const endpoints = items.flatMap((item) => endpointLines(item, headers));
  return `${[...lines, ...endpoints].join("\n")}\n`;
}

function titleOf(wide: boolean): string[] {
  const title = ["SERVICE", "PORT", "ADDRESS", "NODE PORT", "POLICY", "READY", "CONNECTIONS", "RATE", "STATE"];
  return wide ? [...title, "REASON"] : title;
}

function rowOf(item: ServicePortStatus, wide: boolean): string[] {
  const { clusterIP, externalIPs, loadBalancerIPs } = item;
  const addresses = [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
  return [
    `${item.namespace}/${item.name}${item.portName === "" ? "" : `:${item.portName}`}`,
    `${item.port}/${item.protocol}`,
    addresses.length > 0 ? addresses.join(",") : "-",
    item.nodePort === 0 ? "-" : String(item.nodePort),
    policyText(item),
    `${item.serving}/${item.total}`,
    item.connections === undefined ? "-" : String(item.connections),
    rateText(item.connectionsPerSecond),
    item.state,
    ...(wide ? [item.reason ?? "-"] : []),
  ];
}

/** "Cluster", or which of the two policies is Local. */
function policyText({ internalTrafficPolicy, externalTrafficPolicy }: ServicePortStatus): string {
  const [inside, outside] = [internalTrafficPolicy === "Local", externalTrafficPolicy === "Local"];
  if (inside && outside) return "Local";
  if (inside) return "internal Local";
  return outside ? "external Local" : "Cluster";
}

function endpointLines(item: ServicePortStatus, headers: boolean): string[] {
  const { endpoints } = item;
  if (endpoints === undefined) return [];
  const counted = endpoints.some(({ connections }) => connections !== undefined);
  const tracked = endpoints.some(({ open }) => open !== undefined);
  const title = ["", "ENDPOINT", "WHERE", "STATE", "SHARE", "LOCAL SHARE"];
  if (counted) title.push("CONNECTIONS");
  if (tracked) title.push("OPEN", "HALF OPEN");
  const rows = endpoints.map(endpointRow);
  const family = item.family === "ip" ? "IPv4" : "IPv6";
  const head = [
    "",
    `${item.portName === "" ? "" : `${item.portName} `}${item.port}/${item.protocol} ${family}: endpoints`,
  ];
  return [...head, ...columns(headers ? [title, ...rows] : rows)];
}

function endpointRow(endpoint: EndpointStatus): string[] {
  const { address, port, local, serving, draining, clusterShare, localShare, connections, open, halfOpen } = endpoint;
  const text = address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  return [
    "",
    text,
    local ? "this node" : "another node",
    draining === true ? "draining" : serving ? "serving" : "not serving",
    share(clusterShare),
    share(localShare),
    ...[connections, open, halfOpen].flatMap((count) => (count === undefined ? [] : String(count))),
  ];
}

/** Of new connections: "12/s". */
export function rateText(perSecond: number | undefined): string {
  if (perSecond === undefined) return "-";
  return `${perSecond.toFixed(perSecond > 0 && perSecond < 10 ? 1 : 0)}/s`;
}

function share(of: number): string {
  return of === 0 ? "-" : `${(of * 100).toFixed(of < 0.1 ? 1 : 0)} %`;
}
