/** Reads which claims the kernel's tables serve, whichever program wrote them. Used if no model of them exists. */
import { strideOf } from "../nft/kernel/element-batch.js";
import type { ElementBatch, Kernel } from "../nft/kernel/kernel.js";
import type { IpFamily } from "../base/ip.js";
import type { ServiceAddress } from "../model/service-address.js";
import { unpackServiceKey } from "../ruleset/key-packer.js";
import { FORMER_SERVICE_MAPS, SetName, TABLE_NAME } from "../ruleset/names.js";

/** Maps with one element per VIP, protocol and port, or per node port. */
const ADDRESS_MAPS: ReadonlySet<string> = new Set([
  SetName.services,
  SetName.nodePorts,
  SetName.noEndpointServices,
  SetName.noEndpointNodePorts,
  ...FORMER_SERVICE_MAPS,
]);

type ReadKernel = Pick<Kernel, "tables" | "sets" | "elements">;

/** Yields the elements of one map after the other, so that they are not in memory together. */
async function* elementsOf(
  kernel: ReadKernel,
  family: IpFamily,
  maps: ReadonlySet<string>,
): AsyncGenerator<ElementBatch> {
  const ref = { family, table: TABLE_NAME };
  if (!(await kernel.tables(family)).some(({ table }) => table === TABLE_NAME)) return;
  for (const set of await kernel.sets(ref)) if (maps.has(set.set)) yield await kernel.elements(ref, set);
}

/**
 * Returns the VIPs and node ports in a family's table, from `maps` or from all maps that have some. Returns none if
 * there is no table. Rejects with a KernelError, also if the table is deleted meanwhile.
 */
export async function servedAddresses(
  kernel: ReadKernel,
  family: IpFamily,
  maps = ADDRESS_MAPS,
): Promise<ServiceAddress[]> {
  const found: ServiceAddress[] = [];
  for await (const batch of elementsOf(kernel, family, maps)) {
    const stride = strideOf(batch);
    for (let at = 0; at < batch.count * stride; at += stride) {
      const address = unpackServiceKey(batch.bytes.subarray(at, at + batch.keyLen), family);
      if (address !== undefined) found.push(address);
    }
  }
  return found;
}

/** Returns their number. */
export async function countServedAddresses(kernel: ReadKernel, family: IpFamily): Promise<number> {
  let count = 0;
  for await (const batch of elementsOf(kernel, family, ADDRESS_MAPS)) count += batch.count;
  return count;
}
