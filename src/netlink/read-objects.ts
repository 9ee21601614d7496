/** Reads named objects and flowtables of nf_tables (linux/netfilter/nf_tables.h). */
import type { ObjectInfo, TableRef } from "./kernel.js";
import { NfProto } from "./constants.js";
import {
  ask,
  attribute,
  type Attributes,
  type NetlinkExchange,
  NetlinkProtocol,
  networkNumberOf,
  RequestFlag,
  text,
  textOf,
} from "./netlink-message.js";

/** linux/netfilter/nfnetlink.h */
const NFNL_SUBSYS_NFTABLES = 10;
const NFGEN_HEADER = 4;

const Message = { getObject: 19, getFlowtable: 23 } as const;
/** NFTA_OBJ_* and NFTA_FLOWTABLE_* use the same numbers for these. */
const TABLE = 1;
const NAME = 2;
const NFTA_OBJ_TYPE = 3;

/** Returns the table's named objects, then its flowtables, or nothing if there is no such table. Throws KernelError. */
export async function readObjects(netlink: NetlinkExchange, table: TableRef): Promise<ObjectInfo[]> {
  const objects = await dump(netlink, table, Message.getObject);
  const flowtables = await dump(netlink, table, Message.getFlowtable);
  return [
    ...objects.map((found): ObjectInfo => {
      return { kind: "object", object: nameOf(found), objType: networkNumberOf(found, NFTA_OBJ_TYPE) ?? 0 };
    }),
    ...flowtables.map((found): ObjectInfo => ({ kind: "flowtable", flowtable: nameOf(found) })),
  ];
}

async function dump(netlink: NetlinkExchange, { family, table }: TableRef, message: number): Promise<Attributes[]> {
  const request = {
    type: (NFNL_SUBSYS_NFTABLES << 8) | message,
    flags: RequestFlag.dump,
    header: Uint8Array.of(NfProto[family], 0, 0, 0),
    attributes: [attribute(TABLE, text(table))],
  };
  const replies = await ask(netlink, NetlinkProtocol.netfilter, request, NFGEN_HEADER);
  // Some kernels do not filter by the table's name, and return the objects of all tables.
  return replies.flatMap(({ attributes }) => (textOf(attributes, TABLE) === table ? [attributes] : []));
}

function nameOf(found: Attributes): string {
  return textOf(found, NAME) ?? "";
}
