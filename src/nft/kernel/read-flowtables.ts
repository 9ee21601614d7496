/** Reads flowtables of nf_tables (linux/netfilter/nf_tables.h). */
import type { ObjectInfo, TableRef } from "./kernel.js";
import { NfProto } from "./constants.js";
import { ask, attribute, type NetlinkExchange, NetlinkProtocol, RequestFlag, text, textOf } from "./netlink-message.js";

/** linux/netfilter/nfnetlink.h */
const NFNL_SUBSYS_NFTABLES = 10;
const NFGEN_HEADER = 4;

const NFT_MSG_GETFLOWTABLE = 23;
const NFTA_FLOWTABLE_TABLE = 1;
const NFTA_FLOWTABLE_NAME = 2;

/** Returns the table's flowtables, or nothing if there is no such table. Throws KernelError. */
export async function readFlowtables(
  netlink: NetlinkExchange,
  { family, table }: TableRef,
): Promise<Extract<ObjectInfo, { kind: "flowtable" }>[]> {
  const request = {
    type: (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETFLOWTABLE,
    flags: RequestFlag.dump,
    header: Uint8Array.of(NfProto[family], 0, 0, 0),
    attributes: [attribute(NFTA_FLOWTABLE_TABLE, text(table))],
  };
  const replies = await ask(netlink, NetlinkProtocol.netfilter, request, NFGEN_HEADER);
  // Some kernels do not filter by the table's name, and return the flowtables of all tables.
  return replies.flatMap(({ attributes }) =>
    textOf(attributes, NFTA_FLOWTABLE_TABLE) === table
      ? { kind: "flowtable", flowtable: textOf(attributes, NFTA_FLOWTABLE_NAME) ?? "" }
      : [],
  );
}
