import { setTimeout as sleep } from "node:timers/promises";
import { rowOf, titleOf } from "../text/service-row.js";
import { type ServiceList, type ServicePortStatus, serviceText } from "../../observe/status-report.js";
import { columns, linesText } from "../../base/columns.js";
import type { ServicesOptions } from "../options.js";
import { answerOrKernel, itemsOf, jsonText } from "./status.js";
import { UserError, writeOut } from "../stdio.js";

/**
 * `services [NS/NAME]`: lists active services, from the daemon, or from the kernel without names. Exit code 1 if no rules are active, the
 * given service is not served, or its name is unknown because no daemon answers. Otherwise exit code 0.
 */
export async function servicesCommand(name: string | undefined, options: ServicesOptions): Promise<number> {
  const { output, headers = true, watch = false, socket } = options;
  if (watch) return watchServices(name, options);
  if (name === undefined) await writeOut(await allServices(options));
  else {
    const { withConnections } = await import("../answers/endpoint-connections.js");
    await writeOut(await textOf(await withConnections(await servicesOf(name, socket)), output, headers));
  }
  return 0;
}

/** Asks the daemon, or the kernel if no daemon answers. Rejects with UserError if neither answers. */
async function allServices({ output, headers = true, socket }: ServicesOptions): Promise<string> {
  const lacking = "names, states, or endpoints that are not ready";
  const answer = await answerOrKernel(
    () => textByDaemon(output, headers, socket),
    lacking,
    async (kernel, away) => (await import("./kernel-services.js")).servicesByKernel(kernel, away, output, headers),
  );
  return "daemon" in answer ? answer.daemon : answer.kernel;
}

async function textByDaemon(
  output: ServicesOptions["output"],
  headers: boolean,
  socket: string | undefined,
): Promise<string> {
  if (output === "table") {
    // Only the cells are kept, because there may be tens of thousands of services.
    const rows: string[][] = [];
    await itemsOf(socket, ["services"], (some) => {
      for (const item of some as ServiceList["items"]) rows.push(rowOf(item, false));
    });
    return tableText(titleOf(false), rows, headers);
  }
  if (output !== "wide") return textOf(await servicesOf(undefined, socket), output, headers);
  const { withConnectionsLeft } = await import("../answers/endpoint-connections.js");
  return textOf(await withConnectionsLeft(await listOf(socket, ["endpoints"])), output, headers);
}

/** Asks the daemon for all services, or for the service "NAMESPACE/NAME" with its endpoints. */
export function servicesOf(name: string | undefined, socket: string | undefined): Promise<ServiceList> {
  return listOf(socket, name === undefined ? ["services"] : ["services", ...serviceName(name)]);
}

/** Time between two requests, ms. */
const WATCH_MS = 2000;

/** Like `kubectl get -w`: prints the table, then every changed line. Ends with Ctrl-C, with the daemon, or if the output's reader is gone. */
async function watchServices(
  name: string | undefined,
  { output, headers = true, socket }: ServicesOptions,
): Promise<number> {
  if (output !== "table" && output !== "wide")
    throw new UserError(`--watch prints lines, so it cannot be combined with -o ${output}`);
  const wide = output === "wide";
  let shown = new Map<string, string>();
  for (let first = true; ; first = false) {
    const { items } = await servicesOf(name, socket);
    const rows = items.map((item) => ({ cells: rowOf(item, wide), key: keyOf(item), state: stateOf(item, wide) }));
    const now = new Map(rows.map(({ key, state }) => [key, state]));
    const gone = [...shown.keys()].filter((key) => !now.has(key)).map((key) => [...key.split(" "), "gone"]);
    const changed = rows.filter(({ key, state }) => shown.get(key) !== state).map(({ cells }) => cells);
    const lines = columns([titleOf(wide), ...changed]).slice(first && headers ? 0 : 1);
    const text = linesText([...lines, ...gone.map((words) => words.join("  "))]);
    if (text !== "" && !(await writeOut(text))) return 0;
    shown = now;
    await sleep(WATCH_MS);
  }
}

function keyOf(item: ServicePortStatus): string {
  return `${serviceText(item)} ${item.port}/${item.protocol} ${item.family}`;
}

/** Returns a line's text without its connections. */
function stateOf({ connections: _, connectionsPerSecond: __, ...item }: ServicePortStatus, wide: boolean): string {
  return rowOf(item, wide).join(" ");
}

/** Parses "namespace/name". As with kubectl, "name" is in the namespace default. */
function serviceName(text: string): readonly [string, string] {
  const words = text.split("/");
  if (words.length > 2 || words.some((word) => word === "")) {
    throw new UserError(`${text} is not the name of a service; use NAMESPACE/NAME`);
  }
  return words.length === 1 ? ["default", words[0]] : [words[0], words[1]];
}

/** Asks the daemon for a list with all its items. Rejects with UserError. */
export async function listOf(socket: string | undefined, path: readonly string[]): Promise<ServiceList> {
  try {
    const items: ServicePortStatus[] = [];
    const head = await itemsOf(socket, path, (some) => items.push(...(some as ServiceList["items"])));
    return { ...(head as Omit<ServiceList, "items">), items };
  } catch (error) {
    if (!(error instanceof UserError) || !error.message.startsWith("services/")) throw error;
    const hint =
      "it does not exist, has no ClusterIP, or is headless; run `nft-proxier services` to list the served ones";
    throw new UserError(`${path.slice(1).join("/")} is not served: ${hint}`, { cause: error });
  }
}

export async function textOf(list: ServiceList, format: ServicesOptions["output"], headers: boolean): Promise<string> {
  const { items } = list;
  if (format === "json") return jsonText(list);
  if (format === "yaml") return (await import("yaml")).stringify(list);
  if (format === "name") {
    return [...new Set(items.map(({ namespace, name }) => linesText([`service/${namespace}/${name}`])))].join("");
  }
  const wide = format === "wide";
  const { EndpointLines } = await import("../text/endpoint-lines.js");
  const endpoints = new EndpointLines(headers);
  for (const item of items) endpoints.add(item);
  const rows = items.map((item) => rowOf(item, wide));
  return tableText(titleOf(wide), rows, headers, endpoints.lines());
}

function tableText(
  title: readonly string[],
  rows: readonly (readonly string[])[],
  headers: boolean,
  more: readonly string[] = [],
): string {
  if (rows.length === 0 && headers) return "no services\n";
  return linesText([...columns(headers ? [title, ...rows] : rows), ...more]);
}
