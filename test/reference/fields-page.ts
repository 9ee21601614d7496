/** docs/fields.md: every field of packets, from the table of fields. */
import type { Statement } from "../../dist/nft/statements/rule.js";
import { expectedValue, FIELD_TYPES, type ValueType } from "../../dist/nft/language/fields/field-types.js";
import {
  type FieldEntry,
  type FieldName,
  FIELDS,
  protocolOfField,
  SHORT_FIELDS,
} from "../../dist/nft/language/fields/packet-fields.js";
import { GENERATED_FIELDS } from "../../dist/nft/language/vocabulary.js";
import { docstrings } from "./docstrings.ts";
import { keyTable } from "./key-table.ts";
import { cell, type Claim, claimsOf, FAMILIES, familiesText, javascript, textsOf, valuesText } from "./nft-text.ts";

type Value = string | number;

/** Sections, and the first words of their fields' names. */
const SECTIONS = {
  "Ethernet and VLAN": ["ether", "vlan"],
  ARP: ["arp"],
  IPv4: ["ip"],
  "IPv6 and its extension headers": ["ip6", "exthdr", "hbh", "rt header", "frag", "dst", "mh"],
  "ICMP and IGMP": ["icmp", "icmpv6", "igmp"],
  "Ports of any transport protocol": ["th"],
  TCP: ["tcp"],
  "UDP and UDP-Lite": ["udp", "udplite"],
  "SCTP and DCCP": ["sctp", "dccp"],
  IPsec: ["ah", "esp", "comp"],
  "Packet, interfaces and time": [
    "meta",
    "iif",
    "oif",
    "iifname",
    "oifname",
    "iiftype",
    "oiftype",
    "iifgroup",
    "oifgroup",
  ],
  Connection: ["ct"],
  "Route and socket": ["rt", "socket", "osf"],
} as const;

/** A value of each type. Types without an entry have the first of their names. */
const VALUES: Partial<Record<ValueType, Value>> = {
  integer: 1,
  ipv4_addr: "192.0.2.1",
  ipv6_addr: "2001:db8::1",
  ether_addr: "02:00:00:00:00:01",
  inet_proto: "tcp",
  inet_service: 443,
  icmp_type: "echo-request",
  icmp_code: "port-unreachable",
  icmpv6_type: "echo-request",
  icmpv6_code: "port-unreachable",
  tcp_flag: "syn",
  ct_state: "established",
  time: 60_000,
  mark: 16,
  iface_index: 1,
  iface_type: "ether",
  realm: 1,
  classid: "15:3",
  uid: 1000,
  gid: 1000,
  devgroup: 1,
  dscp: "af11",
  boolean: "exists",
  ifname: "eth0",
  day: "Monday",
  hour: 28_800,
};
const VALUES_OF_FIELDS: Partial<Record<FieldName, Value>> = {
  // Other types contradict the family of some tables.
  "ether type": "8021q",
  "vlan type": "8021q",
  "vlan id": 100,
  "ip version": 4,
  "ip hdrlength": 5,
  "ip ttl": 64,
  "ip length": 1500,
  "ip6 version": 6,
  "ip6 hoplimit": 64,
  "ip6 length": 1460,
  "icmp mtu": 1280,
  "icmpv6 mtu": 1280,
  "tcp option maxseg size": 1460,
  "meta length": 1500,
  "ct bytes": 1_000_000,
  "rt mtu": 1500,
  "meta iifkind": "veth",
  "meta oifkind": "veth",
  "meta ibrname": "br0",
  "meta obrname": "br0",
  "osf name": "Linux",
};
/** Some fields are meaningful only after a match of the protocol. */
const TCP: Statement = { field: "meta l4proto", value: "tcp" };

const NAMES = Object.keys(FIELDS) as FieldName[];

function valueOf(name: FieldName): Value {
  const { type } = FIELDS[name];
  return VALUES_OF_FIELDS[name] ?? VALUES[type] ?? Object.keys(FIELD_TYPES[type].names)[0];
}

/** Compares the field, or sets it if it cannot be read. */
function exampleOf(name: FieldName): Statement {
  const [field, value]: [FieldName, Value] = [name, valueOf(name)];
  const { settable }: FieldEntry = FIELDS[name];
  return settable === "only" ? setting(name) : ({ field, value } as Statement);
}

function setting(name: FieldName): Statement {
  return { action: "set", field: name, value: valueOf(name) };
}

/** The example, after the match that it needs. */
function ruleOf(name: FieldName): readonly Statement[] {
  const example = exampleOf(name);
  return textsOf([example]).size > 0 ? [example] : [TCP, example];
}

function row(name: FieldName): string {
  const { type, bits, settable }: FieldEntry = FIELDS[name];
  const example = ruleOf(name);
  const texts = textsOf(example);
  const [first] = texts.values();
  if (first === undefined) throw new Error(`no family accepts ${javascript(example)}: give the field another example`);
  const set = settable === "only" ? "only set" : settable === true ? "yes" : "";
  const families = familiesText([...texts.keys()]);
  return `| \`${name}\` | \`${type}\` | ${bits} | ${families} | ${set} | \`${cell(javascript(valueOf(name)))}\` | \`${cell(first)}\` |`;
}

function sectionOf(name: FieldName): string {
  const { source }: FieldEntry = FIELDS[name];
  const word = protocolOfField(name) === "rt" && source.from === "exthdr" ? "rt header" : protocolOfField(name);
  const found = Object.entries(SECTIONS).find(([, words]) => (words as readonly string[]).includes(word));
  if (found === undefined) throw new Error(`docs/fields.md has no section for ${name}: add it to SECTIONS`);
  return found[0];
}

function sections(): string {
  const names = Object.groupBy(NAMES, sectionOf);
  return Object.keys(SECTIONS)
    .map((title) =>
      [
        `## ${title}\n`,
        "| field | type | bits | families | can be set | `value` | nft |",
        "|---|---|---|---|---|---|---|",
        ...names[title]!.map(row),
      ].join("\n"),
    )
    .join("\n\n");
}

function shortNames(): string {
  const rows = Object.entries(SHORT_FIELDS).map(
    ([short, name]) => `| \`${short}\` | \`${name[4]}\` or \`${name[6]}\` |`,
  );
  return ["| short name | field |", "|---|---|", ...rows].join("\n");
}

const GENERATED_EXAMPLES: { readonly [K in keyof typeof GENERATED_FIELDS]: Statement } = {
  numgen: { field: { field: "numgen", mode: "random", modulus: 10 }, op: "<", value: 3 },
  jhash: { field: { field: "jhash", of: ["ip saddr", "tcp dport"], modulus: 2, seed: 1 }, value: 0 },
  symhash: { field: { field: "symhash", modulus: 2 }, value: 0 },
  fib: { field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" },
  "socket-cgroup": { field: { field: "socket-cgroup", level: 1 }, value: 1 },
  raw: { field: { field: "raw", base: "transport", offset: 16, length: 16 }, value: 443 },
};

function generatedFields(): string {
  const docs = docstrings("GENERATED_FIELDS", "language/vocabulary.ts");
  return Object.entries(GENERATED_FIELDS)
    .map(([name, keys]) => {
      const example = GENERATED_EXAMPLES[name as keyof typeof GENERATED_FIELDS];
      const texts = textsOf([example]);
      const [text] = texts.values();
      return [
        `### ${name}\n`,
        `${docs.get(name)}\n`,
        `${keyTable(name, keys, docs)}\n`,
        `\`\`\`js\n${javascript(example)}\n// ${familiesText([...texts.keys()])}: ${text}\n\`\`\``,
      ].join("\n");
    })
    .join("\n\n");
}

function types(): string {
  const rows = (Object.keys(FIELD_TYPES) as ValueType[]).map((type) => {
    const expected = type === "integer" ? "a number that fits the field" : expectedValue(type);
    const [values, names = ""] = valuesText(expected).split(", or one of ");
    return `| \`${type}\` | ${values} | ${names} |`;
  });
  return ["| type | values | names of values |", "|---|---|---|", ...rows].join("\n");
}

export function fieldClaims(): Claim[] {
  const isSettable = (name: FieldName): boolean => (FIELDS[name] as FieldEntry).settable === true;
  const set = NAMES.filter(isSettable).map(setting);
  return claimsOf([...NAMES.map(ruleOf), ...set, ...Object.values(GENERATED_EXAMPLES)]);
}

/** Text of docs/fields.md. */
export function fieldsPage(): string {
  return `<!-- Generated by test/reference/write.ts. Change the sources that it reads. -->
# Fields

A rule reads and writes fields. The names are nft's own. A condition compares a field with a value:

\`\`\`js
{ field: "tcp dport", value: 443 }
{ field: "ip saddr", op: "!=", value: ["192.0.2.0/24", "198.51.100.7"] }
\`\`\`

[statements.md](statements.md#comparison) describes comparisons, and actions, which set fields. In rules, keys of sets and maps are lists of
fields: \`["ip saddr", "tcp dport"]\`. A mask keeps some bits of a field of a key: \`[{ field: "ip6 saddr", mask: "ffff:ffff:ffff:ffff::" }]\`.

The tables below list all ${NAMES.length} fields:

- **type**: the type of the field's values ([types](#types)). A set whose elements are such values has this type in its \`key\`.
- **families**: the families of tables whose rules can use the field: ${FAMILIES.join(", ")}.
- **can be set**: whether the action \`set\` can write it. "only set": a rule cannot read it.
- **value**: an example. **nft**: the rule with this value, in nft's syntax, in a table of the first of these families.

If a field belongs to a protocol, the rule only matches packets of this protocol. You do not need another condition for it.

${sections()}

## Short names

The table's family, or the set that a rule looks up, decides the IP version of an address.

${shortNames()}

## Generated fields

These values are not in a header. Use them where a field is expected.

${generatedFields()}

## Types

Fields have these types, and so have the keys and data of sets, except \`integer\`. Write values as numbers, or by their names.

${types()}
`;
}
