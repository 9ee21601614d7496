/** The rules of a namespace twice: as the kernel holds them, and as nft lists them. */
import { spawnSync } from "node:child_process";
import { DataTypeId, SetFlag } from "../../../src/nft/kernel/constants.js";
import type { ElementBatch, Kernel, RuleInfo, SetDump, TableRef } from "../../../src/nft/kernel/kernel.js";
import { fullText } from "../../../src/nft/printing/list-rules.js";
import { NFT, SUITE } from "./load-rules.ts";

/** A rule with everything that its text depends on. */
export interface ListedRule {
  readonly rule: RuleInfo;
  /** The sets of its table, by name. */
  readonly sets: ReadonlyMap<string, SetDump>;
  /** The elements of anonymous sets, by name. */
  readonly elements: ReadonlyMap<string, ElementBatch>;
  /** nft's text, without counts. */
  readonly listed: string;
}

/**
 * Reads all rules of the namespace, without those at which nft 1.0.6 aborts: anonymous sets with integers in keys of several fields. nft's comments at the end of a line (`# handle 4`) tell which line is which rule.
 */
export async function listedRules(
  kernel: Kernel,
  { path }: { readonly path: string },
  nft: readonly string[] = NFT,
): Promise<readonly ListedRule[]> {
  for (const ref of await kernel.tables()) await removeAborting(kernel, ref);
  const run = spawnSync("nsenter", [`--net=${path}`, ...nft, "-a", "-s", "list", "ruleset"], {
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (run.status !== 0) throw new Error(`nft list: ${run.stderr}${run.signal ?? ""}`);
  const lines = linesOf(run.stdout);
  const found: ListedRule[] = [];
  for (const { family, table } of await kernel.tables()) {
    const ref = { family, table };
    const sets = new Map((await kernel.sets(ref)).map((set) => [set.set, set]));
    const elements = new Map<string, ElementBatch>();
    for (const set of sets.values()) if ((set.flags & 1) !== 0) elements.set(set.set, await kernel.elements(ref, set));
    for (const rule of await kernel.rules(ref)) {
      const listed = lines.get(`${family} ${table} ${rule.handle}`);
      if (listed !== undefined) found.push({ rule, sets, elements, listed });
    }
  }
  return found;
}

async function removeAborting(kernel: Kernel, { family, table }: TableRef): Promise<void> {
  const ref = { family, table };
  const aborting = new Set((await kernel.sets(ref)).filter((set) => isAborting(set)).map(({ set }) => set));
  if (aborting.size === 0) return;
  const rules = (await kernel.rules(ref)).filter(({ exprs }) =>
    exprs.some((expr) => expr.type === "lookup" && aborting.has(expr.set)),
  );
  await kernel.commit(rules.map(({ chain, handle }) => ({ op: "delete", kind: "rule", ...ref, chain, handle })));
}

function isAborting({ flags, keyType }: SetDump): boolean {
  const types: number[] = [];
  for (let rest = keyType; rest > 0; rest = Math.floor(rest / 64)) types.push(rest % 64);
  return (flags & SetFlag.anonymous) !== 0 && types.length > 1 && types.includes(DataTypeId.integer);
}

/** By family, table and handle. */
function linesOf(text: string): Map<string, string> {
  const lines = new Map<string, string>();
  let table = "";
  for (const line of text.split("\n")) {
    table = /^table (\w+ \S+) \{/.exec(line)?.[1] ?? table;
    const [, rule, handle] = /^\t\t(.*) # handle (\d+)$/.exec(line) ?? [];
    if (rule !== undefined) lines.set(`${table} ${handle}`, rule);
  }
  return lines;
}

/** Differences on purpose: what nft 1.0.6 lists is another rule, or says less. */
interface KnownDifference {
  readonly listed: RegExp;
  /** Our text in its place. */
  readonly ours: RegExp;
  readonly reason: string;
}
const KNOWN: readonly KnownDifference[] = [
  { listed: /\d[smhd]-/, ours: /\d(ms|s|m|h|d)-/, reason: "nft lists times in ranges without milliseconds" },
  { listed: /meta hour "00:00"$/, ours: /hour 86400$/, reason: "nft lists a number beyond a day as another time" },
  { listed: / >> \d/, ours: /^(?!.*>>)/, reason: "nft shows the shift of a field of some bits, which no nft reads" },
  {
    listed: /invalid type|proto-(src|dst) .*\{/,
    ours: /proto-(src|dst) .*\{/,
    reason: "nft does not know the type of a connection's port",
  },
  { listed: /!= .*!= |^arp htype|dscp .*\/4/, ours: /@[nt]h,/, reason: "nft lists parts of fields as other fields" },
  { listed: /exthdr/, ours: /ct l3proto .*exthdr/, reason: "nft takes the connection's protocol for the packet's" },
  { listed: /!= \d+-\d+/, ours: / < \d+ .* > \d+/, reason: "nft joins comparisons of two fields" },
  { listed: /\{ (0x)?1, (0x)?2, |== \{ 64/, ours: /\{ /, reason: "nft lists sets of raw fields without their type" },
  { listed: /tcp flags (!=|==) 0x/, ours: / \| /, reason: "we print flags by name" },
  { listed: /ct state \w+ \| /, ours: /ct state == \w+ \| /, reason: "nft reads its own text as any of the states" },
  {
    listed: /ah reserved|(icmp|igmp|esp|ah) .* th [sd]port|comp flags/,
    ours: /@th,/,
    reason: "the table of fields has no such field",
  },
  { listed: /"(default|cosmos)"/, ours: / 0/, reason: "names in /etc/iproute2" },
  {
    listed: /jhash @ll,112,16 & 0xfff/,
    ours: /jhash vlan id/,
    reason: "nft prints a field of some bits in a hash as raw bytes",
  },
  { listed: /^}$/, ours: /(jump|goto) \{ … \}$/, reason: "nft prints the rules of an unnamed chain" },
  { listed: /\{ syn \| ack, syn \}/, ours: /\{ syn, syn \| ack \}/, reason: "we sort flags by number" },
  {
    listed:
      /sctp chunk|fastopen unknown|tcp option 6|ct (helper|label|id)|original (ip saddr|zone)|meta (time|random|sdif)|osf (version|ttl)|srh|mh type|lsrr ptr/,
    ours: /…/,
    reason: "the table of fields has no such field",
  },
];

/** nft 1.1 lists these in other words than 1.0.6, and reads both. We print the words of 1.0.6, which more versions read. */
const REWORDED: readonly { readonly listed: RegExp; readonly former: string; readonly reason: string }[] = [
  { listed: /(limit rate (?:over )?\d+\/\w+) burst 5 packets/g, former: "$1", reason: "the default burst" },
  { listed: /(fib [\w .]*)\bcheck\b/g, former: "$1oif", reason: "a word of its own for the existence of a route" },
  { listed: /xt (match|target) "(\w+)"/g, former: "xt $1 $2", reason: "extensions of iptables that it does not find" },
  { listed: / & \(([\w| ]+)\) == (\w+(?: \| \w+)*)/g, former: " $2 / $1", reason: "flags under a mask" },
  { listed: / & \(([\w| ]+)\) != (\w+(?: \| \w+)*)/g, former: " != $2 / $1", reason: "flags under a mask" },
];

/** Differences on purpose from nft 1.1, which has the same meaning. */
const LATER: readonly KnownDifference[] = [
  {
    listed: /icmp(v6)? code/,
    ours: /icmp(v6)? code/,
    reason: "nft prints codes by number, because their names depend on the type",
  },
  {
    listed: /ip frag-off/,
    ours: /ip frag-off/,
    reason: "nft prints the field in base 16, and joins comparisons of neighbouring fields",
  },
  {
    listed: /@[nt]h,\d+,[46] /,
    ours: /@[nt]h,\d+,\d+ & 0x/,
    reason: "nft prints raw fields of some bits without a mask",
  },
  { listed: /meta hour "/, ours: /meta hour != "/, reason: "nft prints the other hours as a range over midnight" },
  {
    listed: / & 0x[8cef]\w*0 [!=]= 0x|0x\w{8}-0x\w{8}/,
    ours: / 0x\w{8}\/\d/,
    reason: "nft prints no prefixes of marks",
  },
  {
    listed: /^redirect to :tcp/,
    ours: /^meta l4proto tcp redirect/,
    reason: "nft leaves out the protocol that it implies",
  },
  { listed: /ah nexthdr/, ours: /@th,/, reason: "the table of fields has no such field" },
  { listed: /cgroupv2 level \d "/, ours: /cgroupv2 level \d \d/, reason: "names in /sys/fs/cgroup" },
];

/** Rewords a list of a later nft as 1.0.6 words it. Orders the elements of sets, which only later versions do. */
function formerText(text: string): string {
  if (SUITE === undefined) return text;
  const former = REWORDED.reduce((rest, one) => rest.replaceAll(one.listed, one.former), text);
  return former
    .replaceAll(" | ", ",")
    .replaceAll(/\{ ([^{}]*) \}/g, (_, list: string) => `{ ${list.split(", ").sort().join(", ")} }`);
}

/** Returns the rules whose text differs from nft's without a known reason. */
export function unexplained(rules: readonly ListedRule[]): string[] {
  const differences = SUITE === undefined ? KNOWN : [...KNOWN, ...LATER];
  return rules.flatMap((rule) => {
    const listed = formerText(rule.listed);
    const ours = textOf(rule);
    const text = formerText(ours);
    const isKnown = differences.some((one) => one.listed.test(rule.listed) && one.ours.test(ours));
    if (text.includes("xt ") && withTranslations(text).test(listed)) return [];
    return text === listed || isKnown ? [] : [`nft:  ${rule.listed}\nours: ${ours}`];
  });
}

/** nft prints a match or target of iptables in the words of iptables. We name it. */
function withTranslations(text: string): RegExp {
  const escaped = text.replaceAll(/[^\w ]/g, String.raw`\$&`).replaceAll(/ ?xt (match|target) \w+/g, ".*");
  return new RegExp(`^ *${escaped.trim()}$`);
}

function textOf({ rule, sets, elements }: ListedRule): string {
  return fullText(rule, {
    family: rule.family,
    interfaceName: (index) => (index === 1 ? "lo" : undefined),
    set: (name) => {
      const info = sets.get(name);
      return info && { info, elements: elements.get(name) };
    },
  });
}
