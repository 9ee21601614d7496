import { withPort } from "../../base/ip.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import type { Kernel } from "../../netlink/kernel.js";
import { columns, linesText } from "../../base/columns.js";
import { TABLE_NAME } from "../../ruleset/names.js";
import { type KernelService, type KernelServiceList, kernelServices } from "../answers/kernel-view.js";
import type { ServicesOptions } from "../options.js";
import { jsonText } from "./status.js";
import { UserError } from "../stdio.js";

/** Returns the text of the services in the kernel's tables. Rejects with UserError if there are no tables. */
export async function servicesByKernel(
  kernel: Kernel,
  away: string,
  output: ServicesOptions["output"],
  headers: boolean,
): Promise<string> {
  const list = await kernelServices(kernel);
  if (list === undefined)
    throw new UserError(`${away} There is no table ${TABLE_NAME} either, so no rules of nft-proxier are active.`);
  return kernelServicesText(list, output, headers);
}

async function kernelServicesText(
  list: KernelServiceList,
  format: ServicesOptions["output"],
  headers: boolean,
): Promise<string> {
  if (format === "json") return jsonText(list);
  if (format === "yaml") return (await import("yaml")).stringify(list);
  const { items } = list;
  if (format === "name") return items.map((item) => `${addressText(item)}/${item.protocol}\n`).join("");
  if (items.length === 0) return headers ? "no services\n" : "";
  const title = ["ADDRESS", "PROTOCOL", "LIST", "READY"];
  const rows = items.map((item) => [
    addressText(item),
    item.protocol,
    item.list,
    item.endpoints === undefined ? "-" : String(item.endpoints),
  ]);
  return linesText(columns(headers ? [title, ...rows] : rows));
}

function addressText({ family, address, port }: KernelService): string {
  return address === "" ? `node port ${port} (${FAMILY_NAMES[family]})` : withPort(address, port);
}
