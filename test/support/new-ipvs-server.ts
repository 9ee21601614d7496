import { serverAttribute, type VirtualServer } from "../../src/netlink/ipvs-table.js";
import { attribute, nest, number, text } from "../../src/nft/kernel/netlink-message.js";

/** linux/ip_vs.h: IPVS_CMD_ATTR_SERVICE, and attributes inside it. */
const SERVICE = 1;
const [SCHEDULER, FLAGS, TIMEOUT, NETMASK] = [6, 7, 8, 9];
const ATTRIBUTE_HEADER = 4;

/** Describes a new virtual server like kube-proxy's. If `persistentSeconds` is 0, it has no persistence. */
export function newServerAttribute(server: VirtualServer, persistentSeconds = 0): Uint8Array {
  // IP_VS_SVC_F_PERSISTENT
  const flags = persistentSeconds === 0 ? 0 : 1;
  return nest(SERVICE, [
    serverAttribute(server).subarray(ATTRIBUTE_HEADER),
    attribute(SCHEDULER, text(server.scheduler)),
    attribute(FLAGS, Buffer.concat([number(flags, 4), number(0xffffffff, 4)])),
    attribute(TIMEOUT, number(persistentSeconds, 4)),
    attribute(NETMASK, server.family === "ip" ? number(0xffffffff, 4) : number(128, 4)),
  ]);
}
