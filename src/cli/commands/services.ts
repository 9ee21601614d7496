import { setTimeout as sleep } from "node:timers/promises";
import { linesText } from "../../base/columns.js";
import { compareServices, type ServiceList, type ServicePortStatus, serviceText } from "../../observe/status-report.js";
import type { Kernel } from "../../nft/kernel/kernel.js";
import { TABLE_NAME } from "../../ruleset/names.js";
import { askDaemonOrKernel } from "../answers/ask-daemon-or-kernel.js";
import { DaemonAnswers } from "../answers/daemon-answers.js";
import { withConnections, withConnectionsLeft } from "../answers/endpoint-connections.js";
import { select } from "../answers/selection.js";
import type { ServicesOptions } from "./question-commands.js";
import { UserError, writeOut } from "../stdio.js";
import { structuredText } from "../text/structured-text.js";
import { describeLines, endpointLines, KERNEL_COLUMNS, kernelAddress, SERVICE_COLUMNS } from "../text/service-text.js";
import { Table, tableLines, type TableOptions } from "../text/text-table.js";
import { terminalWidth } from "../text/terminal.js";

const LACKING = "names, states, or endpoints that are not ready";

/**
 * `services [SERVICE...]`: lists services, from the daemon, or from the kernel without names; describes the named ones. Exit code 1 if no
 * rules are active, a given service is not served, or its name is unknown because no daemon answers. Otherwise exit code 0.
 */
export async function servicesCommand(words: readonly string[], options: ServicesOptions): Promise<number> {
  if (options.watch === true) return watchServices(words, options);
  const text =
    words.length === 0
      ? await askDaemonOrKernel(
          options.socket,
          LACKING,
          (answers) => listText(answers, options),
          (kernel, away) => kernelText(kernel, away, options),
        )
      : await namedText(words, options);
  await writeOut(text);
  return 0;
}

async function namedText(words: readonly string[], options: ServicesOptions): Promise<string> {
  const list = await withConnections(await select(new DaemonAnswers(options.socket), words, options.namespace));
  return servicesText(filtered(list, options), options, describeLines);
}

async function listText(answers: DaemonAnswers, options: ServicesOptions): Promise<string> {
  const { output, sortBy } = options;
  if (output === "wide") {
    const list = filtered(await withConnectionsLeft(await answers.endpoints()), options);
    return servicesText(list, options, (items, table) => [
      ...tableLines(SERVICE_COLUMNS, items, table),
      ...endpointLines(items, table),
    ]);
  }
  if (output === "table" && sortBy === undefined) {
    // Only the cells are kept, because there may be tens of thousands of services.
    const table = new Table(SERVICE_COLUMNS, tableOptions(options));
    let any = false;
    await answers.eachService((items) => {
      for (const item of items) {
        if (!isWanted(item, options)) continue;
        any = true;
        table.add(item);
      }
    });
    return any ? linesText(table.flush()) : noneText(options);
  }
  const list = filtered(await answers.services(), options);
  return servicesText(list, options, (items, table) => tableLines(SERVICE_COLUMNS, items, table));
}

function tableOptions({ noHeaders = false, output }: ServicesOptions): TableOptions {
  return { headers: !noHeaders, wide: output === "wide", width: terminalWidth() };
}

function noneText({ noHeaders }: ServicesOptions): string {
  return noHeaders === true ? "" : "no services\n";
}

/** @param lines returns the lines for people. */
export async function servicesText(
  list: ServiceList,
  options: ServicesOptions,
  lines: (items: readonly ServicePortStatus[], options: TableOptions) => readonly string[],
): Promise<string> {
  const { items } = list;
  const { output } = options;
  if (output === "json" || output === "yaml") return structuredText(list, output);
  if (output === "name") {
    return linesText([...new Set(items.map(({ namespace, name }) => `service/${namespace}/${name}`))]);
  }
  return items.length === 0 ? noneText(options) : linesText(lines(items, tableOptions(options)));
}

async function kernelText(kernel: Kernel, { message }: UserError, options: ServicesOptions): Promise<string> {
  const { kernelServices } = await import("../answers/kernel-answers.js");
  const list = await kernelServices(kernel);
  if (list === undefined) {
    throw new UserError(`${message} There is no table ${TABLE_NAME} either, so no rules of nft-proxier are active.`);
  }
  const { items } = list;
  const { output } = options;
  if (output === "json" || output === "yaml") return structuredText(list, output);
  if (output === "name") return items.map((item) => `${kernelAddress(item)}/${item.protocol}\n`).join("");
  return items.length === 0 ? noneText(options) : linesText(tableLines(KERNEL_COLUMNS, items, tableOptions(options)));
}

function isWanted(item: ServicePortStatus, { namespace, state }: ServicesOptions): boolean {
  return (namespace ?? item.namespace) === item.namespace && (state?.includes(item.state) ?? true);
}

const ORDERS: Readonly<
  Record<NonNullable<ServicesOptions["sortBy"]>, (a: ServicePortStatus, b: ServicePortStatus) => number>
> = {
  name: (a, b) => compareServices(`${a.namespace}/${a.name}`, `${b.namespace}/${b.name}`),
  connections: (a, b) => (b.connections ?? -1) - (a.connections ?? -1),
  rate: (a, b) => (b.connectionsPerSecond ?? -1) - (a.connectionsPerSecond ?? -1),
  ready: (a, b) => a.ready - b.ready,
  state: (a, b) => (a.state < b.state ? -1 : Number(a.state > b.state)),
};

function filtered(list: ServiceList, options: ServicesOptions): ServiceList {
  const items = list.items.filter((item) => isWanted(item, options));
  return { ...list, items: options.sortBy === undefined ? items : items.sort(ORDERS[options.sortBy]) };
}

/** Time between two requests, ms. */
const WATCH_MS = 2000;

/** Like `kubectl get -w`: prints the table, then every changed line. Ends with Ctrl-C, with the daemon, or if the output's reader is gone. */
async function watchServices(words: readonly string[], options: ServicesOptions): Promise<number> {
  const { output, noHeaders, socket, namespace } = options;
  if (output !== "table" && output !== "wide")
    throw new UserError(`--watch prints lines, so it cannot be combined with -o ${output}`);
  const answers = new DaemonAnswers(socket);
  let shown = new Map<string, string>();
  for (let first = true; ; first = false) {
    const list = words.length === 0 ? await answers.services() : await select(answers, words, namespace);
    const rows = filtered(list, options).items.map((item) => ({ item, key: keyOf(item), state: stateOf(item) }));
    const now = new Map(rows.map(({ key, state }) => [key, state]));
    const gone = [...shown.keys()].filter((key) => !now.has(key)).map((key) => `${key.replaceAll(" ", "  ")}  gone`);
    const changed = rows.filter(({ key, state }) => shown.get(key) !== state).map(({ item }) => item);
    const lines = tableLines(SERVICE_COLUMNS, changed, {
      ...tableOptions(options),
      headers: first && noHeaders !== true,
    });
    if (lines.length + gone.length > 0 && !(await writeOut(linesText([...lines, ...gone])))) return 0;
    shown = now;
    await sleep(WATCH_MS);
  }
}

function keyOf(item: ServicePortStatus): string {
  return `${serviceText(item)} ${item.port}/${item.protocol} ${item.family}`;
}

/** Returns a service's text without its connections. */
function stateOf({ connections: _, connectionsPerSecond: __, endpoints: ___, ...item }: ServicePortStatus): string {
  return JSON.stringify(item);
}
