import type { ServiceList } from "../control/types.js";
import { columns } from "../base/columns.js";
import { type KernelService, type KernelServiceList, kernelServices } from "./kernel-view.js";
import type { ServicesOptions } from "./options.js";
import { answerOf, answerOrKernel, jsonText } from "./status.js";
import { UserError } from "./stdio.js";

/** All services by the daemon, or by the kernel alone where none answers. Rejects with a UserError where neither tells. */
export async function allServices(
  { output, headers = true, socket }: ServicesOptions,
  text: (list: ServiceList) => Promise<string>,
): Promise<string> {
  const lacking = "names, state and endpoints that are not ready cannot be known.";
  const answer = await answerOrKernel(
    () => answerOf<ServiceList>(socket, "services"),
    lacking,
    async (kernel, away) => {
      const list = await kernelServices(kernel);
      if (list === undefined) throw new UserError(`${away} And no table kube-proxy is here: services are not served.`);
      return list;
    },
  );
  return "daemon" in answer ? text(answer.daemon) : kernelServicesText(answer.kernel, output, headers);
}

export async function kernelServicesText(
  list: KernelServiceList,
  format: ServicesOptions["output"],
  headers: boolean,
): Promise<string> {
  if (format === "json") return jsonText(list);
  if (format === "yaml") return (await import("yaml")).stringify(list);
  const { items } = list;
  if (format === "name") return items.map((item) => `${addressText(item)}/${item.protocol ?? "?"}\n`).join("");
  if (items.length === 0) return headers ? "no services are served\n" : "";
  const title = ["ADDRESS", "PROTOCOL", "LIST", "ENDPOINTS"];
  const rows = items.map((item) => [
    addressText(item),
    item.protocol ?? "?",
    item.list,
    item.endpoints === undefined ? "-" : String(item.endpoints),
  ]);
  return `${columns(headers ? [title, ...rows] : rows).join("\n")}\n`;
}

function addressText({ family, address, port }: KernelService): string {
  if (address === "") return `node port ${port} (${family === "ip" ? "IPv4" : "IPv6"})`;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
