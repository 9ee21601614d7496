/**
 * The kernel port: everything the rest of the program may ask of nf_tables, as types.
 *
 * `NftKernel` (the addon) implements `Kernel`; so does the fake that tests use, and both pass one conformance suite.
 * Numbers are the kernel's own (linux/netfilter/nf_tables.h); `constants.ts` names them. Byte arrays are
 * in the order the kernel keeps them: network byte order for addresses, ports and protocol keys,
 * host byte order for marks, indices and interface data.
 */

export type Family = "inet" | "ip" | "ip6" | "arp" | "bridge" | "netdev";

/** Names one table. */
export interface TableRef {
  readonly family: Family;
  readonly table: string;
}

/** What a rule or a verdict-map element does with a packet. `chain` is set for jump and goto alone. */
export type Verdict =
  | { readonly verdict: "accept" | "drop" | "continue" | "break" | "return" | "queue" }
  | { readonly verdict: "jump" | "goto"; readonly chain: string };

/** Data of an immediate: bytes for a value register, or a verdict for register 0. */
export type RegisterData = Uint8Array | Verdict;

/** An attribute that the codec has no name for; kept so that a read is lossless and drift shows. */
export interface UnknownAttribute {
  /** Attribute type as in the message, NLA_F_NESTED and NLA_F_NET_BYTEORDER bits included. */
  readonly type: number;
  readonly bytes: Uint8Array;
}

interface ExprBase {
  /** Attributes inside a known expression that the codec does not know. Absent when there are none. */
  readonly extra?: readonly UnknownAttribute[];
}

/**
 * One nf_tables expression, as the kernel takes and dumps it. Field names are the kernel's attribute
 * names in lower camel case (NFTA_PAYLOAD_DREG -> dreg). Registers are the dumped form: a register on a
 * 16-byte boundary is 1..4 (NFT_REG_1..4), the others are 8 + word (NFT_REG32_xx); the encoder takes
 * both forms, a dump always has the former.
 * An optional field that is absent is not sent; the kernel may add its default on the way back
 * (see normalizeExpr in `normalize.ts`).
 */
export type Expr =
  | ({
      readonly type: "payload";
      readonly base: number;
      readonly offset: number;
      readonly len: number;
      readonly dreg?: number;
      readonly sreg?: number;
      readonly csumType?: number;
      readonly csumOffset?: number;
      readonly csumFlags?: number;
    } & ExprBase)
  | ({ readonly type: "meta"; readonly key: number; readonly dreg?: number; readonly sreg?: number } & ExprBase)
  | ({
      readonly type: "ct";
      readonly key: number;
      readonly dreg?: number;
      readonly sreg?: number;
      readonly direction?: number;
    } & ExprBase)
  | ({ readonly type: "cmp"; readonly sreg: number; readonly op: number; readonly data: Uint8Array } & ExprBase)
  | ({
      readonly type: "range";
      readonly sreg: number;
      readonly op: number;
      readonly from: Uint8Array;
      readonly to: Uint8Array;
    } & ExprBase)
  | ({
      readonly type: "bitwise";
      readonly sreg: number;
      readonly dreg: number;
      readonly len: number;
      readonly op?: number;
      readonly mask?: Uint8Array;
      readonly xor?: Uint8Array;
      readonly data?: Uint8Array;
    } & ExprBase)
  | ({
      readonly type: "byteorder";
      readonly sreg: number;
      readonly dreg: number;
      readonly op: number;
      readonly len: number;
      readonly size: number;
    } & ExprBase)
  | ({
      readonly type: "lookup";
      readonly set: string;
      readonly setId?: number;
      readonly sreg: number;
      readonly dreg?: number;
      readonly flags?: number;
    } & ExprBase)
  | ({ readonly type: "immediate"; readonly dreg: number; readonly data: RegisterData } & ExprBase)
  | ({ readonly type: "counter"; readonly packets?: bigint; readonly bytes?: bigint } & ExprBase)
  | ({
      readonly type: "limit";
      readonly rate: bigint;
      readonly unit: bigint;
      readonly burst?: number;
      readonly limitType?: number;
      readonly flags?: number;
    } & ExprBase)
  | ({
      readonly type: "log";
      readonly group?: number;
      readonly prefix?: string;
      readonly snaplen?: number;
      readonly qthreshold?: number;
      readonly level?: number;
      readonly flags?: number;
    } & ExprBase)
  | ({
      readonly type: "nat";
      readonly natType: number;
      readonly family: number;
      readonly regAddrMin?: number;
      readonly regAddrMax?: number;
      readonly regProtoMin?: number;
      readonly regProtoMax?: number;
      readonly flags?: number;
    } & ExprBase)
  | ({
      readonly type: "masq";
      readonly flags?: number;
      readonly regProtoMin?: number;
      readonly regProtoMax?: number;
    } & ExprBase)
  | ({
      readonly type: "redir";
      readonly regProtoMin?: number;
      readonly regProtoMax?: number;
      readonly flags?: number;
    } & ExprBase)
  | ({ readonly type: "reject"; readonly rejectType: number; readonly code?: number } & ExprBase)
  | ({ readonly type: "notrack" } & ExprBase)
  | ({ readonly type: "fib"; readonly dreg: number; readonly result: number; readonly flags: number } & ExprBase)
  | ({
      readonly type: "numgen";
      readonly dreg: number;
      readonly modulus: number;
      readonly ngType: number;
      readonly offset?: number;
    } & ExprBase)
  | ({
      readonly type: "hash";
      readonly sreg?: number;
      readonly dreg: number;
      readonly len?: number;
      readonly modulus: number;
      readonly seed?: number;
      readonly offset?: number;
      readonly hashType?: number;
    } & ExprBase)
  | ({
      readonly type: "dynset";
      readonly set: string;
      readonly setId?: number;
      readonly op: number;
      readonly sregKey: number;
      readonly sregData?: number;
      /** Milliseconds. */ readonly timeout?: bigint;
      readonly flags?: number;
      readonly exprs?: readonly Expr[];
    } & ExprBase)
  | ({ readonly type: "quota"; readonly bytes: bigint; readonly flags?: number; readonly consumed?: bigint } & ExprBase)
  | ({ readonly type: "connlimit"; readonly count: number; readonly flags?: number } & ExprBase)
  | ({
      readonly type: "objref";
      readonly immType?: number;
      readonly immName?: string;
      readonly setSreg?: number;
      readonly setName?: string;
      readonly setId?: number;
    } & ExprBase)
  | ({
      readonly type: "exthdr";
      readonly dreg?: number;
      readonly sreg?: number;
      readonly hdrType: number;
      readonly offset: number;
      readonly len: number;
      readonly flags?: number;
      readonly op?: number;
    } & ExprBase)
  | ({ readonly type: "rt"; readonly dreg: number; readonly key: number } & ExprBase)
  | ({ readonly type: "socket"; readonly key: number; readonly dreg: number; readonly level?: number } & ExprBase)
  | ({
      readonly type: "tproxy";
      readonly family: number;
      readonly regAddr?: number;
      readonly regPort?: number;
    } & ExprBase)
  | ({
      readonly type: "queue";
      readonly num?: number;
      readonly total?: number;
      readonly flags?: number;
      readonly sregQnum?: number;
    } & ExprBase)
  | ({ readonly type: "last"; readonly set?: number; readonly msecs?: bigint } & ExprBase)
  /** Has the packet's connection skip the hooks from now on. Of chains at the forward hook; a connection that cannot: break. */
  | ({ readonly type: "flow_offload"; readonly flowtable: string } & ExprBase)
  /** An expression the codec has no table for: `data` is NFTA_EXPR_DATA's payload, sent back as it came. */
  | { readonly type: "opaque"; readonly name: string; readonly data: Uint8Array };

export interface BaseChain {
  readonly type: "filter" | "nat" | "route";
  /** nf_inet_hooks number: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting. */
  readonly hook: number;
  readonly priority: number;
  /** Absent: accept. */
  readonly policy?: "accept" | "drop";
  /** netdev hooks only. */
  readonly devices?: readonly string[];
}

/** The parts of an element that its packed record cannot hold. */
export interface ElementExtra {
  /** Index of the element's record. */
  readonly record: number;
  /** Name of the stateful object that a map's element refers to (a named counter, quota or limit). */
  readonly object?: string;
  /** The comment among others (NFTNL_UDATA_SET_ELEM_*). */
  readonly userdata?: Uint8Array;
}

/** Element bytes, packed: the hot path. `count` records of one fixed stride, no gaps. */
export interface ElementBatch {
  readonly count: number;
  /** Bytes per key; every field of a concatenation padded to 4. 1..64. */
  readonly keyLen: number;
  /** Each record holds key, then the inclusive end of its range (concatenations with the `interval` flag). */
  readonly keyEnd?: boolean;
  /** Bytes of data per record: 0 for a set, 4 for a verdict map (an index into `verdicts`, host order). */
  readonly dataLen: number;
  /** Present exactly for verdict maps. */
  readonly verdicts?: readonly Verdict[];
  /** Each record then has 4 bytes of element flags, host order (1: NFT_SET_ELEM_INTERVAL_END, 2: CATCHALL, key ignored). */
  readonly flags?: boolean;
  /** Each record then has 8 bytes of timeout in ms, host order, 0 for none. */
  readonly timeouts?: boolean;
  /** Each record then has 8 bytes: ms until it expires, host order. 0 for none. */
  readonly expirations?: boolean;
  /** Each record then has 16 bytes: packets and bytes of its counter, host order. Of sets whose only expression is a counter. */
  readonly counters?: boolean;
  /** Of a dump: the elements that have more than a record can hold. A commit refuses a batch with them. */
  readonly extras?: readonly ElementExtra[];
  /** count * strideOf(batch) bytes: key, key end, data, flags, timeout, expiration, counter. */
  readonly bytes: Uint8Array;
}

export interface SetInfo {
  readonly set: string;
  /** NFT_SET_* flags. */
  readonly flags: number;
  /** For nft to print with; a concatenation shifts 6 bits a field. */
  readonly keyType: number;
  readonly keyLen: number;
  /** 0xffffff00 (NFT_DATA_VERDICT) for verdict maps. Absent for sets. */
  readonly dataType?: number;
  /** Absent for sets and verdict maps. */
  readonly dataLen?: number;
  /** Stateful object maps only. */
  readonly objType?: number;
  /** Upper bound of elements; absent: none. */
  readonly size?: number;
  /** Default timeout of an element, ms. */
  readonly timeout?: bigint;
  readonly gcInterval?: number;
  readonly policy?: number;
  /** Bytes of each field of a concatenation (NFTA_SET_FIELD_LEN, unpadded), needed with the interval flag. */
  readonly fieldLens?: readonly number[];
  readonly exprs?: readonly Expr[];
  readonly userdata?: Uint8Array;
}

type Add = "add" | "create";
/** `destroy` (Linux >= 6.3) is a delete that does not mind when the object is not there. */
type Remove = "delete" | "destroy";

/** One operation of a batch. `add` does not mind an existing object of the same kind, `create` does. */
export type Op =
  | ({
      readonly op: Add | Remove;
      readonly kind: "table";
      readonly flags?: number;
      readonly userdata?: Uint8Array;
      readonly handle?: bigint;
    } & TableRef)
  | ({
      readonly op: Add | Remove;
      readonly kind: "chain";
      readonly chain: string;
      readonly base?: BaseChain;
      readonly flags?: number;
      readonly userdata?: Uint8Array;
      readonly handle?: bigint;
    } & TableRef)
  /** add appends, insert prepends; with `position` (a rule's handle) behind or before that rule. */
  | ({
      readonly op: "add" | "insert";
      readonly kind: "rule";
      readonly chain: string;
      readonly exprs: readonly Expr[];
      readonly userdata?: Uint8Array;
      readonly position?: bigint;
    } & TableRef)
  | ({
      readonly op: "replace";
      readonly kind: "rule";
      readonly chain: string;
      readonly exprs: readonly Expr[];
      readonly userdata?: Uint8Array;
      readonly handle: bigint;
    } & TableRef)
  | ({ readonly op: Remove; readonly kind: "rule"; readonly chain: string; readonly handle: bigint } & TableRef)
  /** Empties a chain, or every chain of the table when `chain` is absent. */
  | ({ readonly op: "flush"; readonly kind: "rule"; readonly chain?: string } & TableRef)
  /** `id` lets rules and elements of the same batch name an anonymous set (`set: "__set%d"`). */
  | ({ readonly op: Add; readonly kind: "set"; readonly id?: number } & SetInfo & TableRef)
  | ({ readonly op: Remove; readonly kind: "set"; readonly set: string; readonly handle?: bigint } & TableRef)
  | ({
      readonly op: Add | Remove;
      readonly kind: "elements";
      readonly set: string;
      readonly setId?: number;
      readonly elements: ElementBatch;
      /**
       * Indices of elements to be added that begin with the counts of the kernel's elements with the same keys. Those are read right before
       * the transaction is sent. If one cannot be read, the count in `elements` is used.
       */
      readonly carry?: Uint32Array;
    } & TableRef)
  /** Empties a set or map. */
  | ({ readonly op: "flush"; readonly kind: "elements"; readonly set: string } & TableRef)
  /**
   * At the ingress hook of devices, at most 256 in one operation. Of a flowtable that is there: devices that it is to have besides, and
   * flags that it is to have instead (Linux 5.8).
   */
  | ({
      readonly op: Add;
      readonly kind: "flowtable";
      readonly flowtable: string;
      readonly priority: number;
      /** NFT_FLOWTABLE_*, as `FlowtableFlag` names them. */
      readonly flags?: number;
      readonly devices: readonly string[];
    } & TableRef)
  /** With devices: of those alone (Linux 5.8). */
  | ({
      readonly op: Remove;
      readonly kind: "flowtable";
      readonly flowtable: string;
      readonly priority?: number;
      readonly devices?: readonly string[];
    } & TableRef)
  /** A named object (counter, quota, limit, ct helper). `objType` is one of NFT_OBJECT_*, as `objects` gives it. */
  | ({ readonly op: Remove; readonly kind: "object"; readonly object: string; readonly objType: number } & TableRef);

export type OpKind = Op["kind"];

export interface CommitOptions {
  /** The commit fails with ERESTART unless the ruleset's generation is this one (NFNL_BATCH_GENID). */
  readonly expectGeneration?: number;
  /** Checked by the kernel, then rolled back (a batch without its end); the generation stays. */
  readonly dryRun?: boolean;
}

export interface CommitResult {
  /** Bytes of the batch as sent. */
  readonly bytes: number;
  readonly messages: number;
  /** Nanoseconds inside sendmsg: the kernel's own time. */
  readonly kernelNs: number;
  /** Nanoseconds spent encoding, off the main thread. */
  readonly encodeNs: number;
}

export interface TableInfo extends TableRef {
  readonly handle: bigint;
  /** NFT_TABLE_F_*: 1 dormant, 2 owner, 4 persist. */
  readonly flags: number;
  /** Number of chains, sets, ... in it. */
  readonly use: number;
  readonly userdata?: Uint8Array;
  /** Netlink port of the owner, when the table has one. */
  readonly owner?: number;
}

export interface ChainInfo extends TableRef {
  readonly chain: string;
  readonly handle: bigint;
  readonly base?: BaseChain;
  readonly flags: number;
  readonly use: number;
  readonly userdata?: Uint8Array;
}

export interface RuleInfo extends TableRef {
  readonly chain: string;
  readonly handle: bigint;
  readonly exprs: readonly Expr[];
  readonly userdata?: Uint8Array;
}

export interface SetDump extends TableRef, SetInfo {
  readonly handle: bigint;
  /** Elements that it holds (NFTA_SET_COUNT), without that for all keys; of intervals roughly half of them. Absent: Linux before 6.16 does not tell. */
  readonly count?: number;
}

/** A named object or a flowtable of a table. */
export type ObjectInfo =
  | { readonly kind: "object"; readonly object: string; readonly objType: number }
  | { readonly kind: "flowtable"; readonly flowtable: string };

/** One change of the ruleset, as the kernel multicasts it after a commit. */
export interface ChangeEvent {
  readonly action: "new" | "delete";
  readonly kind: "table" | "chain" | "rule" | "set" | "elements" | "object" | "flowtable";
  readonly family: Family;
  readonly table: string;
  /** Name of the chain, set, object or flowtable. Absent for tables. */
  readonly name?: string;
  /** Handle of the table, chain, rule or set, where the message has one. */
  readonly handle?: bigint;
  /** Number of elements in an `elements` event. */
  readonly count?: number;
}

export interface ChangeBatch {
  /** Generation after the commit. */
  readonly generation: number;
  /** Netlink port id of the socket that committed. */
  readonly portId: number;
  /** Process that committed, from NFTA_GEN_PROC_PID and _NAME. */
  readonly process?: { readonly pid: number; readonly name: string };
  readonly events: readonly ChangeEvent[];
}

export interface MonitorHandlers {
  /** One call per commit, our own included. */
  onBatch(batch: ChangeBatch): void;
  /**
   * The kernel dropped events (ENOBUFS), or another process committed while a large commit of this kernel object kept its monitors
   * from listening: a listener must resync.
   */
  onLost(): void;
  /** The stream ended for good. */
  onError(error: Error): void;
}

export interface MonitorOptions {
  /** Only events of these tables; absent: all. */
  readonly tables?: readonly TableRef[];
  /** Skip what this kernel object's own commits changed; the batch still comes, with no events. Default true. */
  readonly skipOwn?: boolean;
}

/**
 * What one rule, or the end of a chain, did with a packet whose `meta nftrace` is set (NFTA_TRACE_*). Only rules that matched are told, and
 * the packet's headers and interfaces once for each base chain.
 */
export interface TraceEvent extends TableRef {
  /** The same for a packet until it leaves this namespace, or comes back to it through the loopback interface. */
  readonly id: number;
  /** NFT_TRACETYPE_*, as `TraceType` names them. */
  readonly type: number;
  /** NFPROTO_*, of the packet. */
  readonly nfproto: number;
  readonly chain: string;
  /** Handle of the rule; absent at the end of a chain. */
  readonly rule?: bigint;
  /** Of a rule, or of a chain that is returned from; "?": the packet was taken out of the hook's way (NF_STOLEN). */
  readonly verdict?: { readonly verdict: Verdict["verdict"] | "?"; readonly chain?: string };
  /** NF_DROP (0) or NF_ACCEPT (1), at the end of a base chain. */
  readonly policy?: number;
  readonly mark?: number;
  /** Indices of interfaces. */
  readonly iif?: number;
  readonly oif?: number;
  /** Begin of the IP header, and of the header behind it: 40 and 20 bytes at most. */
  readonly network?: Uint8Array;
  readonly transport?: Uint8Array;
  /** Linux 6.16: id of the conntrack entry (CTA_ID), and the packet's `ct state` bits. */
  readonly ctId?: number;
  readonly ctState?: number;
}

export interface TraceHandlers {
  /** In the kernel's order. */
  onEvents(events: readonly TraceEvent[]): void;
  /** The kernel dropped some (ENOBUFS). */
  onLost(): void;
  /** The stream ended for good. */
  onError(error: Error): void;
}

export interface Monitor {
  close(): Promise<void>;
}

export interface Generation {
  readonly id: number;
  readonly pid?: number;
  readonly name?: string;
}

/**
 * nf_tables in one network namespace. Every method is asynchronous and off the main thread. Errors are
 * `KernelError`. Calls may overlap; commits are serialised in call order.
 */
export interface Kernel {
  /**
   * Netlink port id of the socket that commits: tells our events from other processes', and names a table's owner. Another one after a commit
   * that failed because the socket was no more: what it owned then has no owner.
   */
  readonly portId: number;
  commit(ops: readonly Op[], options?: CommitOptions): Promise<CommitResult>;
  generation(): Promise<Generation>;
  tables(family?: Family): Promise<TableInfo[]>;
  /**
   * All chains of the table, or those of these names that are there. For all of them the kernel walks the chains of every table of
   * the family; one by name costs it nothing to find.
   */
  chains(table: TableRef, names?: readonly string[]): Promise<ChainInfo[]>;
  /** In kernel order. */
  rules(table: TableRef, chain?: string): Promise<RuleInfo[]>;
  sets(table: TableRef): Promise<SetDump[]>;
  /** Named objects and flowtables. */
  objects(table: TableRef): Promise<ObjectInfo[]>;
  /** Throws ENOENT when there is no such set. Right after many were added, an element may be in the dump twice: the kernel's hash grows. */
  elements(table: TableRef, set: SetInfo): Promise<ElementBatch>;
  /**
   * Listening has its price: while any process listens, the kernel makes an event for each element of each commit, all of them held until
   * it is through (4 KB and 1 µs each, on Linux 6.18: at half a million elements 2 GB and 7 s). Monitors with `skipOwn` therefore do
   * not listen while this object's own commits of more than 1,000 elements are under way.
   */
  monitor(handlers: MonitorHandlers, options?: MonitorOptions): Promise<Monitor>;
  close(): Promise<void>;
}
