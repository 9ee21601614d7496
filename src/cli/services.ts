import { stringify } from "yaml";
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
  const { output, headers = true, socket } = options;
  if (name === undefined) {
    const { allServices } = await import("./kernel-services.js");
    await writeOut(await allServices(options, (list) => textOf(list, output, headers)));
    return 0;
  }
  const list = await listOf(socket, serviceName(name));
  await writeOut(textOf(list, output, headers));
  return 0;
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

export function textOf(list: ServiceList, format: ServicesOptions["output"], headers: boolean): string {
  const { items } = list;
  if (format === "json") return jsonText(list);
  if (format === "yaml") return stringify(list);
  if (format === "name") {
    return [...new Set(items.map(({ namespace, name }) => `service/${namespace}/${name}\n`))].join("");
  }
  const wide = format === "wide";
  const title = ["SERVICE", "PORT", "ADDRESS", "NODE PORT", "POLICY", "READY", "STATE", ...(wide ? ["REASON"] : [])];
  const rows = items.map((item) => rowOf(item, wide));
  const lines = columns(headers ? [title, ...rows] : rows);
  if (items.length === 0 && headers) return "no services are served\n";
  const endpoints = items.flatMap((item) => endpointLines(item, headers));
  return `${[...lines, ...endpoints].join("\n")}\n`;
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
  const title = ["", "ENDPOINT", "WHERE", "STATE", "SHARE", "LOCAL SHARE"];
  const rows = endpoints.map(endpointRow);
  const family = item.family === "ip" ? "IPv4" : "IPv6";
  const head = [
    "",
    `${item.portName === "" ? "" : `${item.portName} `}${item.port}/${item.protocol} ${family}: endpoints`,
  ];
  return [...head, ...columns(headers ? [title, ...rows] : rows)];
}

function endpointRow({ address, port, local, serving, clusterShare, localShare }: EndpointStatus): string[] {
  const text = address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  return [
    "",
    text,
    local ? "this node" : "another node",
    serving ? "serving" : "not serving",
    share(clusterShare),
    share(localShare),
  ];
}

function share(of: number): string {
  return of === 0 ? "-" : `${(of * 100).toFixed(of < 0.1 ? 1 : 0)} %`;
}
