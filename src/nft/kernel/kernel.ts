/**
 * The kernel interface: types of everything that the program may ask of nf_tables.
 *
 * `NftKernel` (the addon) and the tests' fake implement `Kernel`, and both pass one conformance suite. Numbers are the kernel's own
 * (linux/netfilter/nf_tables.h), with names in `constants.ts`. Byte arrays have the kernel's order: network byte order for addresses,
 * ports and protocol keys, host byte order for marks, indices and interface data.
 */

export type Family = "inet" | "ip" | "ip6" | "arp" | "bridge" | "netdev";

/** The identity of a table. */
export interface TableRef {
  readonly family: Family;
  readonly table: string;
}

/** The action of a rule or a verdict map's element on a packet. Only jump and goto have a `chain`. */
export type Verdict =
  | { readonly verdict: "accept" | "drop" | "continue" | "break" | "return" | "queue" }
  | { readonly verdict: "jump" | "goto"; readonly chain: string };

/** Data of an immediate: bytes for a value register, or a verdict for register 0. */
export type RegisterData = Uint8Array | Verdict;

/** An attribute that the codec does not know. It is kept, so that a read is lossless and shows drift. */
export interface UnknownAttribute {
  /** Attribute type as in the message, NLA_F_NESTED and NLA_F_NET_BYTEORDER bits included. */
  readonly type: number;
  readonly bytes: Uint8Array;
}

interface ExprBase {
  /** Attributes inside a known expression that the codec does not know. Absent if there are none. */
  readonly extra?: readonly UnknownAttribute[];
}

/** The ports of an expression that rewrites addresses, and its flags. */
export interface NatPorts extends ExprBase {
  readonly regProtoMin?: number;
  readonly regProtoMax?: number;
  readonly flags?: number;
}

/**
 * One nf_tables expression, as the kernel accepts and dumps it. Field names are the kernel's attribute names in lower camel case
 * (NFTA_PAYLOAD_DREG -> dreg). Registers have the dumped form: a register on a 16-byte boundary is 1..4 (NFT_REG_1..4), and the others
 * are 8 + word (NFT_REG32_xx). The encoder also accepts the second form for all registers.
 * An absent optional field is not sent, and the kernel may add its default to a dump (see normalizeExpr in `normalize.ts`).
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
      /** Second operand of and, or and xor, instead of `data` (Linux 6.13). */
      readonly sreg2?: number;
      readonly dreg: number;
      readonly len: number;
      readonly op?: number;
      readonly mask?: Uint8Array;
      readonly xor?: Uint8Array;
      /**
       * Number of bits of a shift (4 bytes), or second operand of and, or and xor. The kernel's dumps have only 4 bytes of it, so use `mask` and
       * `xor` for longer operands.
       */
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
    } & NatPorts)
  | ({ readonly type: "masq" } & NatPorts)
  | ({ readonly type: "redir" } & NatPorts)
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
  /** With `sreg`, writes to a TCP option. With neither register, replaces the option by NOPs, and has only `hdrType` and `op`. */
  | ({
      readonly type: "exthdr";
      readonly dreg?: number;
      readonly sreg?: number;
      readonly hdrType: number;
      readonly offset?: number;
      readonly len?: number;
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
  /** Lets the packet's connection skip the hooks from now on, or breaks if it cannot. Only in chains at the forward hook. */
  | ({ readonly type: "flow_offload"; readonly flowtable: string } & ExprBase)
  /** Sends a copy of the packet: in ip and ip6 to an address, in netdev out of a device, whose index is in a register. */
  | ({ readonly type: "dup"; readonly sregAddr?: number; readonly sregDev?: number } & ExprBase)
  /** Sends the packet out of a device. With an address, as to a neighbour there. Only in netdev. */
  | ({
      readonly type: "fwd";
      readonly sregDev: number;
      readonly sregAddr?: number;
      readonly nfproto?: number;
    } & ExprBase)
  | ({ readonly type: "synproxy"; readonly mss?: number; readonly wscale?: number; readonly flags?: number } & ExprBase)
  | ({ readonly type: "osf"; readonly dreg: number; readonly ttl?: number; readonly flags?: number } & ExprBase)
  | ({
      readonly type: "xfrm";
      readonly dreg: number;
      readonly key: number;
      readonly dir: number;
      readonly spnum?: number;
    } & ExprBase)
  | ({ readonly type: "tunnel"; readonly key: number; readonly dreg: number; readonly mode?: number } & ExprBase)
  /** Evaluates one payload or meta expression on the packet inside a tunnel (Linux 6.2). */
  | ({
      readonly type: "inner";
      readonly num: number;
      readonly innerType: number;
      readonly flags: number;
      readonly hdrsize: number;
      readonly exprs: readonly [Expr];
    } & ExprBase)
  /** An expression that the codec does not know. `data` is NFTA_EXPR_DATA's payload, which is sent unchanged. */
  | { readonly type: "opaque"; readonly name: string; readonly data: Uint8Array };

/**
 * The data of a named object: its definition, and its use so far. Fields are named as in `Expr`. An absent optional field is not sent, and the
 * kernel may add its default to a dump. `l3proto` and `l4proto` are NFPROTO_* and IPPROTO_*.
 */
export type ObjectData =
  | Extract<Expr, { type: "counter" | "quota" | "limit" | "connlimit" | "synproxy" }>
  | ({
      readonly type: "ct helper";
      readonly name: string;
      readonly l3proto?: number;
      readonly l4proto: number;
    } & ExprBase)
  | ({
      readonly type: "ct timeout";
      readonly l3proto?: number;
      readonly l4proto: number;
      /** Seconds, by state of the connection: the first is attribute 1 of CTA_TIMEOUT_TCP_*, CTA_TIMEOUT_UDP_*. A dump has all of them. */
      readonly timeouts: readonly (number | undefined)[];
    } & ExprBase)
  | ({
      readonly type: "ct expectation";
      readonly l3proto?: number;
      readonly l4proto: number;
      readonly dport: number;
      /** Seconds. nft writes and prints it as milliseconds. */
      readonly timeout: number;
      readonly size: number;
    } & ExprBase)
  | ({ readonly type: "secmark"; readonly context: string } & ExprBase)
  /** Data that the codec does not know. `data` is NFTA_OBJ_DATA's payload. */
  | { readonly type: "opaque"; readonly name: string; readonly data: Uint8Array };

/** The identity of a named object in its table. Objects of different types may have the same name. */
export interface ObjectRef {
  readonly object: string;
  /** One of NFT_OBJECT_*, as `ObjectType` names them. */
  readonly objType: number;
}

export interface BaseChain {
  readonly type: "filter" | "nat" | "route";
  /** nf_inet_hooks number: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting. */
  readonly hook: number;
  readonly priority: number;
  /** Default: accept. */
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
  /** The comment and other data (NFTNL_UDATA_SET_ELEM_*). */
  readonly userdata?: Uint8Array;
}

/** Packed elements, because this is the hot path: `count` records of one fixed stride, without gaps. */
export interface ElementBatch {
  readonly count: number;
  /** Bytes per key, 1..64. Every field of a concatenation is padded to a multiple of 4. */
  readonly keyLen: number;
  /** Each record has the inclusive end of its range after the key (concatenations with the `interval` flag). */
  readonly keyEnd?: boolean;
  /** Bytes of data per record: 0 for a set, 4 for a verdict map (an index into `verdicts`, host order). */
  readonly dataLen: number;
  /** Present only for verdict maps. */
  readonly verdicts?: readonly Verdict[];
  /** Whether each record has 4 bytes of element flags, host order (1: NFT_SET_ELEM_INTERVAL_END, 2: CATCHALL, key ignored). */
  readonly flags?: boolean;
  /** Whether each record has 8 bytes of timeout in ms, host order. 0: none. */
  readonly timeouts?: boolean;
  /** Whether each record has 8 bytes of time until it expires in ms, host order. 0: none. */
  readonly expirations?: boolean;
  /** Whether each record has 16 bytes: its counter's packets and bytes, host order. Only for sets whose only expression is a counter. */
  readonly counters?: boolean;
  /** The parts of elements that records cannot hold. In a map of objects, every element that a commit adds has an object. */
  readonly extras?: readonly ElementExtra[];
  /** count * strideOf(batch) bytes: key, key end, data, flags, timeout, expiration, counter. */
  readonly bytes: Uint8Array;
}

export interface SetInfo {
  readonly set: string;
  /** NFT_SET_* flags. */
  readonly flags: number;
  /** nft needs this to print keys. In a concatenation, each field is shifted by 6 bits. */
  readonly keyType: number;
  readonly keyLen: number;
  /** 0xffffff00 (NFT_DATA_VERDICT) for verdict maps. Absent for sets. */
  readonly dataType?: number;
  /** Absent for sets and verdict maps. */
  readonly dataLen?: number;
  /** Stateful object maps only. */
  readonly objType?: number;
  /** Maximum number of elements. Absent if unlimited. */
  readonly size?: number;
  /** Default timeout of an element, ms. */
  readonly timeout?: bigint;
  readonly gcInterval?: number;
  readonly policy?: number;
  /** Bytes of each field of a concatenation (NFTA_SET_FIELD_LEN, unpadded). Required with the interval flag. */
  readonly fieldLens?: readonly number[];
  readonly exprs?: readonly Expr[];
  readonly userdata?: Uint8Array;
}

type Add = "add" | "create";
/** `destroy` (Linux >= 6.3) is like delete, but succeeds if the object does not exist. */
type Remove = "delete" | "destroy";

/** One operation of a batch. If the object exists, `add` succeeds and `create` fails. */
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
  /** add appends, insert prepends. With `position` (a rule's handle), they put the rule after or before that rule. */
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
  /** Empties a chain, or every chain of the table if `chain` is absent. */
  | ({ readonly op: "flush"; readonly kind: "rule"; readonly chain?: string } & TableRef)
  /** With `id`, rules and elements of the same batch can refer to an anonymous set (`set: "__set%d"`). */
  | ({ readonly op: Add; readonly kind: "set"; readonly id?: number } & SetInfo & TableRef)
  | ({ readonly op: Remove; readonly kind: "set"; readonly set: string; readonly handle?: bigint } & TableRef)
  | ({
      readonly op: Add | Remove;
      readonly kind: "elements";
      readonly set: string;
      readonly setId?: number;
      readonly elements: ElementBatch;
      /**
       * Indices of added elements that start with the counts of the kernel's elements with the same keys. These counts are read right before
       * the transaction is sent. If a count cannot be read, the count in `elements` is used.
       */
      readonly carry?: Uint32Array;
    } & TableRef)
  /** Empties a set or map. */
  | ({ readonly op: "flush"; readonly kind: "elements"; readonly set: string } & TableRef)
  /**
   * Registers a flowtable at the ingress hook of devices, at most 256 in one operation. If the flowtable exists, it gets these additional devices,
   * and these flags instead of its own (Linux 5.8).
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
  /** With devices, only these are removed from the flowtable (Linux 5.8). */
  | ({
      readonly op: Remove;
      readonly kind: "flowtable";
      readonly flowtable: string;
      readonly priority?: number;
      readonly devices?: readonly string[];
    } & TableRef)
  /**
   * A named object. If it exists, a quota or synproxy gets this definition and keeps its use. Other objects stay as they are. The kernel refuses to
   * remove an object that rules or elements refer to.
   */
  | ({
      readonly op: Add;
      readonly kind: "object";
      readonly data: ObjectData;
      readonly userdata?: Uint8Array;
    } & ObjectRef &
      TableRef)
  | ({ readonly op: Remove; readonly kind: "object" } & ObjectRef & TableRef);

export type OpKind = Op["kind"];

export interface CommitOptions {
  /** The commit fails with ERESTART unless this is the ruleset's generation (NFNL_BATCH_GENID). */
  readonly expectGeneration?: number;
  /** The kernel only checks the batch and then rolls it back, because it has no end. The generation stays. */
  readonly dryRun?: boolean;
}

export interface CommitResult {
  /** Bytes of the batch as sent. */
  readonly bytes: number;
  readonly messages: number;
  /** Time in sendmsg, which is the kernel's own, ns. */
  readonly kernelNs: number;
  /** Time for encoding, off the main thread, ns. */
  readonly encodeNs: number;
}

export interface TableInfo extends TableRef {
  readonly handle: bigint;
  /** NFT_TABLE_F_*: 1 dormant, 2 owner, 4 persist. */
  readonly flags: number;
  /** Number of chains, sets and other objects in it. */
  readonly use: number;
  readonly userdata?: Uint8Array;
  /** Netlink port of the table's owner, if it has one. */
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
  /** Number of elements (NFTA_SET_COUNT) without the catch-all; for intervals, roughly half. Linux reports it only since 6.16. */
  readonly count?: number;
}

export interface ObjectDump extends ObjectRef {
  readonly kind: "object";
  readonly handle: bigint;
  /** Number of rules' expressions and elements that refer to it. */
  readonly use: number;
  readonly data: ObjectData;
  readonly userdata?: Uint8Array;
}

/** A named object or a flowtable of a table. */
export type ObjectInfo = ObjectDump | { readonly kind: "flowtable"; readonly flowtable: string };

/** One change of the ruleset, as the kernel multicasts it after a commit. */
export interface ChangeEvent {
  readonly action: "new" | "delete";
  readonly kind: "table" | "chain" | "rule" | "set" | "elements" | "object" | "flowtable";
  readonly family: Family;
  readonly table: string;
  /** Name of the chain, set, object or flowtable. Absent for tables. */
  readonly name?: string;
  /** Handle of the table, chain, rule or set, if the message has one. */
  readonly handle?: bigint;
  /** Number of elements in an `elements` event. */
  readonly count?: number;
}

export interface ChangeBatch {
  /** Generation after the commit. */
  readonly generation: number;
  /** Netlink port id of the socket that committed. */
  readonly portId: number;
  /** The process that committed, from NFTA_GEN_PROC_PID and _NAME. */
  readonly process?: { readonly pid: number; readonly name: string };
  readonly events: readonly ChangeEvent[];
}

/** Handlers that every stream of events has. */
export interface StreamHandlers {
  /** The kernel dropped events (ENOBUFS). */
  onLost(): void;
  /** The stream ended permanently. */
  onError(error: Error): void;
}

export interface MonitorHandlers extends StreamHandlers {
  /** Called once per commit, including our own. */
  onBatch(batch: ChangeBatch): void;
  /**
   * Events were lost, and the listener must resync. The kernel dropped events (ENOBUFS), or another process committed while monitors did not
   * listen because of a large commit of this kernel object.
   */
  onLost(): void;
}

export interface MonitorOptions {
  /** Only report events of these tables. Default: all. */
  readonly tables?: readonly TableRef[];
  /** Skip events of this kernel object's own commits. Their batches still come, without events. Default true. */
  readonly skipOwn?: boolean;
}

/**
 * The action of one rule, or of the end of a chain, on a packet whose `meta nftrace` is set (NFTA_TRACE_*). The kernel only reports matching rules,
 * and the packet's headers and interfaces once per base chain.
 */
export interface TraceEvent extends TableRef {
  /** Stays the same for a packet until it leaves this namespace, or comes back through the loopback interface. */
  readonly id: number;
  /** NFT_TRACETYPE_*, as `TraceType` names them. */
  readonly type: number;
  /** The packet's NFPROTO_*. */
  readonly nfproto: number;
  readonly chain: string;
  /** Handle of the rule. Absent at the end of a chain. */
  readonly rule?: bigint;
  /** Verdict of a rule, or of a chain that returns. "?" if the hook no longer has the packet (NF_STOLEN). */
  readonly verdict?: { readonly verdict: Verdict["verdict"] | "?"; readonly chain?: string };
  /** NF_DROP (0) or NF_ACCEPT (1), at the end of a base chain. */
  readonly policy?: number;
  readonly mark?: number;
  /** Indices of the incoming and the outgoing interface. */
  readonly iif?: number;
  readonly oif?: number;
  /** First bytes of the IP header (at most 40), and of the next header (at most 20). */
  readonly network?: Uint8Array;
  readonly transport?: Uint8Array;
  /** Since Linux 6.16: id of the conntrack entry (CTA_ID), and the packet's `ct state` bits. */
  readonly ctId?: number;
  readonly ctState?: number;
}

export interface TraceHandlers extends StreamHandlers {
  /** Receives events in the kernel's order. */
  onEvents(events: readonly TraceEvent[]): void;
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
 * nf_tables in one network namespace. Every method is asynchronous and works off the main thread. Errors are `KernelError`s. Calls may
 * overlap. Commits are serialised in call order.
 */
export interface Kernel {
  /**
   * Netlink port id of the socket that commits. It distinguishes our events from other processes', and identifies a table's owner. It changes after
   * a commit that failed because the socket was gone. The tables that this socket owned then have no owner.
   */
  readonly portId: number;
  /**
   * `beside`: number of transactions that `commit` has committed and that left this table alone. Each raises the ruleset's generation by one, unless it
   * changes nothing.
   */
  readonly committed: { readonly beside: (table: TableRef) => number };
  commit(ops: readonly Op[], options?: CommitOptions): Promise<CommitResult>;
  generation(): Promise<Generation>;
  tables(family?: Family): Promise<TableInfo[]>;
  /**
   * Returns all chains of the table, or the existing chains of these names. For all of them, the kernel walks the chains of every table of the
   * family. A chain by name costs almost nothing to find.
   */
  chains(table: TableRef, names?: readonly string[]): Promise<ChainInfo[]>;
  /** Returns rules in the kernel's order. */
  rules(table: TableRef, chain?: string): Promise<RuleInfo[]>;
  sets(table: TableRef): Promise<SetDump[]>;
  /** Returns the table's named objects and flowtables. */
  objects(table: TableRef): Promise<ObjectInfo[]>;
  /**
   * Returns one named object, or undefined if there is none. With `reset`, its counts then start at 0, and no packet in between is lost. A reset
   * sends no event, and does not change the generation.
   */
  object(table: TableRef, object: ObjectRef, reset?: boolean): Promise<ObjectDump | undefined>;
  /** Throws ENOENT if there is no such set. Right after many additions, a dump may have an element twice, because the kernel's hash grows. */
  elements(table: TableRef, set: SetInfo): Promise<ElementBatch>;
  /**
   * Listening is expensive. While any process listens, the kernel creates one event per element of a commit, and keeps all of them until the
   * commit ends. On Linux 6.18, an event costs 4 KB and 1 µs, and half a million elements cost 2 GB and 7 s. Monitors with `skipOwn`
   * therefore do not listen during this object's own commits of more than 1,000 elements.
   */
  monitor(handlers: MonitorHandlers, options?: MonitorOptions): Promise<Monitor>;
  close(): Promise<void>;
}
