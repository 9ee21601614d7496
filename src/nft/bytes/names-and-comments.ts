/** Names, comments and userdata that the kernel and every nft can hold and print. */

/** NFT_NAME_MAXLEN counts the NUL. */
const MAX_NAME_BYTES = 255;
/** NFTNL_UDATA_COMMENT_MAXLEN. */
export const MAX_COMMENT_BYTES = 128;
/** NF_LOG_PREFIXLEN counts the NUL. */
export const MAX_LOG_PREFIX_BYTES = 127;
/** IFNAMSIZ counts the NUL. */
export const MAX_INTERFACE_BYTES = 15;

/** Whether this is a valid interface name. */
export function isInterfaceName(name: string): boolean {
  const bytes = Buffer.byteLength(name);
  return bytes > 0 && bytes <= MAX_INTERFACE_BYTES && !/[\s"/*\0]/.test(name);
}

/** Type of the comment in a table's, chain's or rule's userdata (NFTNL_UDATA_*_COMMENT). */
const COMMENT = 0;
/** NFTNL_UDATA_SET_COMMENT. */
const SET_COMMENT = 7;

// oxlint-disable-next-line no-control-regex
const UNQUOTABLE = /["\u0000-\u001f\u007f]/;

const NAME = /^[A-Za-z_][A-Za-z0-9_/\\.-]*$/;

/** Words that nft 1.0.6 cannot read as a name. */
const KEYWORDS: ReadonlySet<string> = new Set(
  [
    "accept add ah all and arp auto-merge bridge cgroup chain comment comp constant continue counter cpu create ct day dccp define delete describe device",
    "devices dnat drop dst dup dynamic ecn element elements eq esp ether exists expires export exthdr fib flags flow flowtable flush frag fwd gc-interval",
    "ge get goto gt handle hbh hook hour ibriport ibrname icmp icmpv6 igmp iif iifgroup iifname iiftype import include index inet insert interval ip",
    "ip6 ipsec jhash jump le limit list log lshift lt map mark masquerade meta meter mh missing monitor ne netdev nftrace not notrack numgen",
    "obriport obrname offload oif oifgroup oifname oiftype or osf pkttype policy position priority queue quota random redefine redirect reject rename replace reset return rshift",
    "rt rt0 rt2 rtclassid rule ruleset sctp secmark set size skgid skuid snat socket srh symhash synproxy table tcp th time timeout tproxy type",
    "typeof udp udplite undefine update vlan vmap xor xt",
  ].flatMap((line) => line.split(" ")),
);

export function isKeyword(name: unknown): boolean {
  return typeof name === "string" && KEYWORDS.has(name);
}

/** Whether the kernel accepts the name and nft can read it back. */
export function isName(name: string): boolean {
  return Buffer.byteLength(name) <= MAX_NAME_BYTES && NAME.test(name) && !KEYWORDS.has(name);
}

/** Whether nft can print the text between double quotes and read it back. */
export function isQuotable(text: string, mostBytes: number): boolean {
  return Buffer.byteLength(text) <= mostBytes && !UNQUOTABLE.test(text);
}

/** Returns userdata as nft writes it: type, length, text with its NUL. Undefined without a comment. */
export function commentData(comment: string | undefined, kind: "set" | "other" = "other"): Uint8Array | undefined {
  if (comment === undefined) return undefined;
  const text = Buffer.from(`${comment}\0`);
  return Uint8Array.from([kind === "set" ? SET_COMMENT : COMMENT, text.length, ...text]);
}

/** Returns the comment in userdata that nft or this program wrote. Other entries are skipped. */
export function commentOf(userdata: Uint8Array | undefined, kind: "set" | "other" = "other"): string | undefined {
  if (userdata === undefined) return undefined;
  const desired = kind === "set" ? SET_COMMENT : COMMENT;
  for (let at = 0; at + 2 <= userdata.length; at += 2 + userdata[at + 1]) {
    if (userdata[at] !== desired) continue;
    const text = Buffer.from(userdata.subarray(at + 2, at + 2 + userdata[at + 1])).toString();
    return text.endsWith("\0") ? text.slice(0, -1) : text;
  }
  return undefined;
}
