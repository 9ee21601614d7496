/**
 * Translates rules in nft's words to rules of the older iptables: those that kube-proxy's iptables mode and its neighbours need. The
 * structs are those of linux/netfilter/xt_*.h and of nf_nat.h.
 */
import { isIPv6 } from "node:net";
import { extension, LAYOUT, type LegacyFamily, type LegacyRule, type Target } from "./legacy-table.ts";

const PROTOCOLS = { tcp: 6, udp: 17, sctp: 132 } as const;
type Protocol = keyof typeof PROTOCOLS;

/** Offsets in ipt_ip and ip6t_ip6. */
const WHERE = {
  ip: { saddr: 0, daddr: 4, smask: 8, dmask: 12, length: 4, protocol: 80, inverse: 83 },
  ip6: { saddr: 0, daddr: 16, smask: 32, dmask: 48, length: 16, protocol: 128, inverse: 132 },
} as const;
/** IPT_INV_SRCIP and IPT_INV_DSTIP; IP6T_F_PROTO. */
const INVERSE = { saddr: 0x08, daddr: 0x10 } as const;
const F_PROTO = 0x01;

function addressBytes(text: string): Buffer {
  if (!isIPv6(text)) return Buffer.from(text.split(".").map(Number));
  const [head, tail] = text.split("::").map((half) => half.split(":").filter((group) => group !== ""));
  const groups =
    tail === undefined ? head : [...head, ...Array<string>(8 - head.length - tail.length).fill("0"), ...tail];
  const bytes = Buffer.alloc(16);
  groups.forEach((group, index) => bytes.writeUInt16BE(Number.parseInt(group, 16), 2 * index));
  return bytes;
}

const mask = (bits: number, length: number): Buffer =>
  Buffer.from(Array.from({ length }, (_, i) => (0xff << (8 - Math.min(8, Math.max(0, bits - 8 * i)))) & 0xff));

function bytes(length: number, fill: (view: Buffer) => void): Buffer {
  const data = Buffer.alloc(length);
  fill(data);
  return data;
}
const words = (...numbers: readonly number[]): Buffer => Buffer.from(new Uint32Array(numbers).buffer);
const shorts = (...numbers: readonly number[]): Buffer => Buffer.from(new Uint16Array(numbers).buffer);

class Builder {
  readonly #family: LegacyFamily;
  readonly #head: Buffer;
  readonly #matches: Buffer[] = [];
  target: Target = { next: true };

  constructor(family: LegacyFamily) {
    this.#family = family;
    this.#head = Buffer.alloc(LAYOUT[family].entry);
  }

  match(name: string, revision: number, data: Uint8Array): void {
    this.#matches.push(extension(name, revision, data));
  }

  extend(name: string, revision: number, data: Uint8Array): void {
    this.target = { extension: extension(name, revision, data).toString("base64") };
  }

  address(side: "saddr" | "daddr", inverse: boolean, cidr: string): void {
    const where = WHERE[this.#family];
    const [address, bits = String(8 * where.length)] = cidr.split("/");
    this.#head.set(addressBytes(address), where[side]);
    this.#head.set(mask(Number(bits), where.length), where[side === "saddr" ? "smask" : "dmask"]);
    if (inverse) this.#head[where.inverse] |= INVERSE[side];
  }

  protocol(protocol: Protocol): void {
    this.#head.writeUInt16LE(PROTOCOLS[protocol], WHERE[this.#family].protocol);
    if (this.#family === "ip6") this.#head[LAYOUT.ip6.flags] |= F_PROTO;
  }

  port(protocol: Protocol, port: number): void {
    this.protocol(protocol);
    const any = [0, 0xffff];
    if (protocol === "tcp") this.match("tcp", 0, Buffer.concat([shorts(...any, port, port), Buffer.alloc(4)]));
    else if (protocol === "udp") this.match("udp", 0, Buffer.concat([shorts(...any, port, port), Buffer.alloc(2)]));
    // The destination comes first; XT_SCTP_DEST_PORTS.
    else
      this.match(
        "sctp",
        0,
        bytes(292, (data) => data.set(shorts(port, port, ...any)) ?? data.writeUInt32LE(2, 284)),
      );
  }

  dnat(to: string): void {
    const [, address = "", port = ""] = /^\[?(.*?)\]?:(\d+)$/.exec(to) ?? [];
    // struct nf_nat_range2: NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED
    const data = bytes(44, (range) => {
      range.writeUInt32LE(3, 0);
      for (const at of [4, 20]) range.set(addressBytes(address), at);
      for (const at of [36, 38]) range.writeUInt16BE(Number(port), at);
    });
    this.extend("DNAT", 2, data);
  }

  masquerade(): void {
    // NF_NAT_RANGE_PROTO_RANDOM_FULLY; for IPv4 in a struct of its own, which begins with the number of ranges.
    const flags = 1 << 4;
    const ip = this.#family === "ip" ? bytes(20, (data) => data.set(words(1, flags))) : undefined;
    this.extend("MASQUERADE", 0, ip ?? bytes(40, (data) => data.set(words(flags))));
  }

  rule(): LegacyRule {
    return { match: Buffer.concat([this.#head, ...this.#matches]).toString("base64"), target: this.target };
  }
}

const STATES = { related: 4, established: 2, new: 8 } as const;
type Words = readonly [
  pattern: RegExp,
  add: (builder: Builder, found: readonly string[], family: LegacyFamily) => void,
];

const WORDS: readonly Words[] = [
  [/^counter/, () => undefined],
  [
    /^# (.*)$/m,
    (to, [text]) =>
      to.match(
        "comment",
        0,
        bytes(256, (data) => data.write(text)),
      ),
  ],
  [/^ip6? (saddr|daddr) (!= )?(\S+)/, (to, [side, not, cidr]) => to.address(side as "saddr", not !== undefined, cidr)],
  [/^(tcp|udp|sctp) dport (\d+)/, (to, [protocol, port]) => to.port(protocol as Protocol, Number(port))],
  [/^meta l4proto (\w+)/, (to, [protocol]) => to.protocol(protocol as Protocol)],
  [
    /^meta mark and (\w+) (==|!=) (\w+)/,
    (to, [among, is, mark]) => to.match("mark", 1, words(Number(mark), Number(among), is === "!=" ? 1 : 0)),
  ],
  [
    /^meta mark set meta mark (or|xor) (\w+)/,
    (to, [how, mark]) => to.extend("MARK", 2, words(Number(mark), how === "or" ? Number(mark) : 0)),
  ],
  // XT_ADDRTYPE_LOCAL as the destination
  [/^fib daddr type local/, (to) => to.match("addrtype", 1, shorts(0, 4, 0, 0))],
  [
    /^numgen random mod (\d+) == 0/,
    (to, [count]) =>
      to.match(
        "statistic",
        0,
        bytes(24, (data) => data.writeUInt32LE(0x80000000 / Number(count), 4)),
      ),
  ],
  [
    /^ct state (\S+)/,
    (to, [states]) =>
      to.match(
        "state",
        0,
        words(states.split(",").reduce((bits, one) => bits | STATES[one as keyof typeof STATES], 0)),
      ),
  ],
  [/^dnat to (\S+)/, (to, [address]) => to.dnat(address)],
  [/^masquerade fully-random/, (to) => to.masquerade()],
  // Port unreachable.
  [/^reject/, (to, _, family) => to.extend("REJECT", 0, words(family === "ip" ? 3 : 4))],
  [/^jump (\S+)/, (to, [chain]) => (to.target = { jump: chain })],
  [/^goto (\S+)/, (to, [chain]) => (to.target = { goto: chain })],
  [/^(accept|drop|return)/, (to, [verdict]) => (to.target = { verdict: verdict.toUpperCase() as "DROP" })],
];

/** `# …` up to the end of a line is a comment. Throws if a word is unknown. */
export function legacyRule(family: LegacyFamily, text: string): LegacyRule {
  const builder = new Builder(family);
  for (let rest = text.trim(); rest !== "";) {
    const known = WORDS.find(([pattern]) => pattern.test(rest));
    const found = known?.[0].exec(rest);
    if (known === undefined || found == null) throw new Error(`no iptables rule for "${rest}" in "${text}"`);
    known[1](builder, found.slice(1), family);
    rest = rest.slice(found[0].length).trim();
  }
  return builder.rule();
}
