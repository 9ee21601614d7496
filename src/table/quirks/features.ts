/** What this kernel can do, found out by batches that are checked and rolled back. */
import {
  DATA_VERDICT,
  DataTypeId,
  FibFlag,
  FibResult,
  Hook,
  NatFlag,
  NatType,
  NfProto,
  Priority,
  RejectType,
  SetFlag,
  TableFlag,
} from "../../kernel/constants.js";
import { KernelError } from "../../kernel/errors.js";
import type { Expr, Family, Kernel, Op } from "../../kernel/types.js";

export interface Features {
  /** `destroy` operations (Linux 6.3). */
  readonly destroy: boolean;
  /** masquerade with fully random ports. */
  readonly masqueradeFullyRandom: boolean;
  /** snat with fully random ports. */
  readonly snatFullyRandom: boolean;
  /** reject in prerouting (Linux 5.9). */
  readonly rejectPrerouting: boolean;
  /** NFT_TABLE_F_OWNER (Linux 5.12). */
  readonly tableOwner: boolean;
  /** NFT_TABLE_F_PERSIST with an owner (Linux 6.9). */
  readonly tablePersist: boolean;
  /** nat chains in `inet` tables (Linux 5.2). */
  readonly inetNat: boolean;
  /** Route look-ups (`fib`). */
  readonly fib: boolean;
  /** Comments of chains in userdata (Linux 5.10). */
  readonly chainUserdata: boolean;
  /** A verdict map that is deleted lets go of its chains at once (Linux 6.4, 5.10.188, 6.1.36). */
  readonly deletedMapsLetGo: boolean;
}

const TABLE = "feature-probe";

async function takes(kernel: Kernel, ops: readonly Op[]): Promise<boolean> {
  try {
    await kernel.commit(ops, { dryRun: true });
    return true;
  } catch (error) {
    if (error instanceof KernelError && error.code === "refused") return false;
    throw error;
  }
}

/** True: the kernel takes it. False: it refuses it with this errno alone. Undefined: with another, or it does not say. */
async function takesUnless(errno: string, kernel: Kernel, ops: readonly Op[]): Promise<boolean | undefined> {
  try {
    await kernel.commit(ops, { dryRun: true });
    return true;
  } catch (error) {
    if (!(error instanceof KernelError) || error.code !== "refused") throw error;
    return error.faults.length > 0 && error.faults.every((fault) => fault.errno === errno) ? false : undefined;
  }
}

/** `Features.tablePersist` alone: each probe costs the kernel some 10 ms. */
export function probeOwnedTables(kernel: Kernel, family: Family): Promise<boolean> {
  const flags = TableFlag.owner | TableFlag.persist;
  return takes(kernel, [{ op: "add", kind: "table", family, table: TABLE, flags }]);
}

/**
 * `Features.rejectPrerouting` alone. Undefined: the kernel refuses something else about it, which tells nothing.
 * Throws KernelError for anything but a refusal.
 */
export function probeRejectPrerouting(kernel: Kernel, family: Family): Promise<boolean | undefined> {
  const reject: Expr =
    family === "inet"
      ? { type: "reject", rejectType: RejectType.icmpxUnreachable, code: 1 }
      : { type: "reject", rejectType: RejectType.icmpUnreachable, code: family === "ip6" ? 4 : 3 };
  // nft_reject_validate of a hook that it does not know.
  return takesUnless("EOPNOTSUPP", kernel, chainOps(family, "filter", Hook.prerouting, Priority.filter, [reject]));
}

/**
 * `Features.deletedMapsLetGo` alone. Undefined: the kernel refuses something else about it, which tells nothing.
 * Throws KernelError for anything but a refusal.
 */
export function probeDeletedMaps(kernel: Kernel, family: Family): Promise<boolean | undefined> {
  const ref = { family, table: TABLE } as const;
  const elements = {
    count: 1,
    keyLen: 4,
    dataLen: 4,
    verdicts: [{ verdict: "goto", chain: "probe" }],
    bytes: new Uint8Array(8),
  } as const;
  const keyType = DataTypeId.integer;
  const map = { set: "probe", flags: SetFlag.map, keyType, keyLen: 4, dataType: DATA_VERDICT } as const;
  const ops: readonly Op[] = [
    { op: "add", kind: "table", ...ref },
    { op: "add", kind: "chain", ...ref, chain: "probe" },
    { op: "add", kind: "set", ...ref, ...map },
    { op: "add", kind: "elements", ...ref, set: "probe", elements },
    { op: "delete", kind: "set", ...ref, set: "probe" },
    { op: "delete", kind: "chain", ...ref, chain: "probe" },
  ];
  return takesUnless("EBUSY", kernel, ops);
}

/** A base chain with one rule, in a table of its own. */
function chainOps(
  family: Family,
  type: "nat" | "filter",
  hook: number,
  priority: number,
  exprs: readonly Expr[],
): readonly Op[] {
  const ref = { family, table: TABLE } as const;
  return [
    { op: "add", kind: "table", ...ref },
    { op: "add", kind: "chain", ...ref, chain: "probe", base: { type, hook, priority } },
    { op: "add", kind: "rule", ...ref, chain: "probe", exprs },
  ];
}

export async function probeFeatures(kernel: Kernel, family: Family): Promise<Features> {
  const ref = { family, table: TABLE } as const;
  const works = (...ops: Op[]): Promise<boolean> => takes(kernel, ops);
  const table: Op = { op: "add", kind: "table", ...ref };
  const v6 = family === "ip6";
  const address = new Uint8Array(v6 ? 16 : 4).fill(1);
  const snat: Expr[] = [
    { type: "immediate", dreg: 1, data: address },
    {
      type: "nat",
      natType: NatType.snat,
      family: v6 ? NfProto.ip6 : NfProto.ip,
      regAddrMin: 1,
      flags: NatFlag.protoRandomFully,
    },
  ];
  const inet = { family: "inet", table: TABLE } as const;
  return {
    destroy: await works(table, { op: "destroy", kind: "chain", ...ref, chain: "not-there" }),
    masqueradeFullyRandom: await works(
      ...chainOps(family, "nat", Hook.postrouting, Priority.srcnat, [
        { type: "masq", flags: NatFlag.protoRandomFully },
      ]),
    ),
    snatFullyRandom: await works(...chainOps(family, "nat", Hook.postrouting, Priority.srcnat, snat)),
    rejectPrerouting: (await probeRejectPrerouting(kernel, family)) === true,
    tableOwner: await works({ ...table, flags: TableFlag.owner }),
    tablePersist: await probeOwnedTables(kernel, family),
    inetNat: await works(
      { op: "add", kind: "table", ...inet },
      {
        op: "add",
        kind: "chain",
        ...inet,
        chain: "probe",
        base: { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat },
      },
    ),
    fib: await works(
      ...chainOps(family, "filter", Hook.prerouting, Priority.filter, [
        { type: "fib", dreg: 1, result: FibResult.addrtype, flags: FibFlag.saddr },
      ]),
    ),
    chainUserdata: await works(table, {
      op: "add",
      kind: "chain",
      ...ref,
      chain: "probe",
      userdata: Uint8Array.of(0, 2, 0x78, 0),
    }),
    deletedMapsLetGo: (await probeDeletedMaps(kernel, family)) === true,
  };
}
