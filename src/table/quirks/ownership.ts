/**
 * Tables that nobody else can change: NFT_TABLE_F_OWNER with NFT_TABLE_F_PERSIST (Linux 6.9). While the socket lives that made or
 * claimed such a table, others' changes are refused and their `flush ruleset` passes it by; when the socket closes, the table stays, and the
 * next one can claim it; no event tells of that (nft_rcv_nl_event). The flags can neither be given to a plain table nor taken away (nf_tables_updtable): then it is made anew.
 */
import { TableFlag } from "../../kernel/constants.js";

const OWNED = TableFlag.owner | TableFlag.persist;

/** Flags to make the table with. */
export function tableFlags(own: boolean): number {
  return own ? OWNED : 0;
}

/** What is known of a table that is there. */
export interface TableFacts {
  readonly flags: number;
  /** Netlink port of the owner. */
  readonly owner?: number;
}

export type TableFate =
  /** As it should be. */
  | "fits"
  /** Its flags are set in place: woken up, claimed, or both. */
  | "update"
  /** It goes, with all that is in it, and comes anew in the same transaction. */
  | "recreate"
  /** Another program owns it and runs: nothing can be done. */
  | "theirs";

export function fateOf({ flags, owner }: TableFacts, own: boolean, portId: number): TableFate {
  const owned = (flags & TableFlag.owner) !== 0;
  if (owned && owner !== portId) return "theirs";
  const persistent = (flags & TableFlag.persist) !== 0;
  if (persistent !== own || (owned && !own)) return "recreate";
  return owned === own && (flags & TableFlag.dormant) === 0 ? "fits" : "update";
}
