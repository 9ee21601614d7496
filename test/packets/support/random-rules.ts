/** Random rulesets of other programs, for `explain`. The same dice give the same ruleset. */
import type { Dice } from "../../support/dice.ts";
import type { AddressPair, Family } from "../../lab/topology.ts";

/** Values that packets in the lab have, so that random rules often match them. */
export interface Alphabet {
  readonly addresses: readonly AddressPair[];
  /** Networks of some of the addresses. */
  readonly networks: readonly AddressPair[];
  readonly ports: readonly number[];
  /** Interfaces of the node, each with a device that packets pass. */
  readonly devices: readonly string[];
  /** Targets of DNAT. */
  readonly endpoints: readonly AddressPair[];
  readonly nodeAddresses: readonly AddressPair[];
}

export interface RandomTable {
  /** "inet t0". */
  readonly name: string;
  /** One line per statement, as nft 1.0.6 requires. */
  readonly lines: readonly string[];
}

type TableFamily = "ip" | "ip6" | "inet" | "netdev" | "bridge";
type HookName = "ingress" | "egress" | "prerouting" | "input" | "forward" | "output" | "postrouting";
type ChainType = "filter" | "nat" | "route";

const FAMILIES: readonly TableFamily[] = [
  "inet",
  "inet",
  "inet",
  "ip",
  "ip",
  "ip6",
  "ip6",
  "netdev",
  "netdev",
  "bridge",
];
const HOOKS: readonly HookName[] = ["prerouting", "input", "forward", "forward", "output", "postrouting"];
/** Few, so that chains often share one, also with the kernel's own steps. */
const PRIORITIES = [-300, -300, -250, -200, -150, -150, -110, -100, -90, -5, 0, 0, 5, 10, 50, 90, 100, 110];
/** Without 0, where br_netfilter passes packets to IP, in an unknown order. */
const BRIDGE_PRIORITIES = [-300, -200, -10, 10, 100, 300];
const NAT_PRIORITIES = [-110, -105, -100, -90, 90, 95, 100, 110];
const MARKS = [0, 1, 2, 3, 0x4000];

export function randomRuleset(dice: Dice, alphabet: Alphabet): RandomTable[] {
  const count = dice.pick([1, 1, 1, 2, 2, 2, 3, 4, 5]);
  // Several tables with one chain each at the same place.
  const same = dice.chance(4) ? dice.pick(PRIORITIES) : undefined;
  return Array.from({ length: count }, (_, i) => new TableMaker(dice, alphabet, i, same).make());
}

class TableMaker {
  readonly #dice: Dice;
  readonly #alphabet: Alphabet;
  readonly #family: TableFamily;
  readonly #name: string;
  readonly #same: number | undefined;
  readonly #sets: string[] = [];
  #targets: readonly string[] = [];
  /** The hook and type of the chain that is being made. */
  #hook: HookName | undefined;
  #type: ChainType = "filter";

  constructor(dice: Dice, alphabet: Alphabet, index: number, same: number | undefined) {
    this.#dice = dice;
    this.#alphabet = alphabet;
    this.#family = same === undefined ? dice.pick(FAMILIES) : "inet";
    this.#name = `${this.#family} t${index}`;
    this.#same = same;
  }

  make(): RandomTable {
    const dice = this.#dice;
    this.#makeSets();
    const bodies: string[] = [];
    // A chain only leads to chains that were made before it, so there are no loops.
    for (let i = 0, count = dice.below(3); i < count; i++) {
      const name = `c${i}`;
      this.#hook = undefined;
      this.#type = "filter";
      bodies.push(`chain ${name} {`, ...this.#rules(3), "}");
      this.#targets = [...this.#targets, name];
    }
    for (let i = 0, count = this.#same === undefined ? 1 + dice.below(3) : 1; i < count; i++)
      bodies.push(...this.#base(i));
    const dormant = dice.chance(3) ? ["flags dormant"] : [];
    return { name: this.#name, lines: [`table ${this.#name} {`, ...dormant, ...this.#sets, ...bodies, "}"] };
  }

  #base(index: number): string[] {
    const dice = this.#dice;
    const isDevice =
      this.#family === "netdev" || (this.#family === "inet" && this.#same === undefined && dice.chance(12));
    this.#hook = isDevice
      ? this.#family === "netdev"
        ? dice.pick(["ingress", "egress"])
        : "ingress"
      : this.#same === undefined
        ? dice.pick(HOOKS)
        : "prerouting";
    const isNat = this.#same === undefined && !isDevice && this.#family !== "bridge" && this.#hook !== "forward";
    this.#type =
      isNat && dice.chance(35) ? "nat" : isNat && this.#hook === "output" && dice.chance(15) ? "route" : "filter";
    const priority = this.#same ?? dice.pick(this.#priorities);
    const device = isDevice ? ` device "${dice.pick(this.#alphabet.devices)}"` : "";
    const policy = this.#type !== "nat" && dice.chance(8) ? ["policy drop"] : [];
    // Most firewalls begin like this.
    const isUsual = this.#hasConntrack && !isDevice && this.#type === "filter" && dice.chance(70);
    const usual = isUsual ? ["ct state established,related accept"] : [];
    // A chain that drops by policy accepts something.
    const accepts = policy.length > 0 && dice.chance(70) ? [`${this.#match()} accept`] : [];
    return [
      `chain b${index} {`,
      `type ${this.#type} hook ${this.#hook}${device} priority ${priority}`,
      ...policy,
      ...usual,
      ...this.#rules(4),
      ...accepts,
      "}",
    ];
  }

  get #priorities(): readonly number[] {
    if (this.#family === "bridge") return BRIDGE_PRIORITIES;
    return this.#type === "nat" ? NAT_PRIORITIES : PRIORITIES;
  }

  #makeSets(): void {
    const dice = this.#dice;
    const { addresses, networks, ports } = this.#alphabet;
    const list = (all: readonly (string | number)[]): string => [...new Set(all)].join(", ");
    if (!dice.chance(50)) return;
    const family = this.#l3();
    const type = family === "ip" ? "ipv4_addr" : "ipv6_addr";
    const some = [dice.pick(addresses), dice.pick(addresses)].map((pair) => pair[family]);
    this.#sets.push(
      ...["set plain {", `type ${type}`, `elements = { ${list(some)} }`, "}"],
      ...["set wide {", `type ${type}`, "flags interval", `elements = { ${dice.pick(networks)[family]} }`, "}"],
      ...[
        "set ends {",
        `type ${type} . inet_service`,
        `elements = { ${list(some.map((address) => `${address} . ${dice.pick(ports)}`))} }`,
        "}",
      ],
      ...["quota enough {", "over 25 mbytes", "}", "limit pace {", "rate 1000/second", "}"],
      ...[
        "map pairs {",
        `type ${type} . ${type} : verdict`,
        "flags interval",
        `elements = { ${dice.pick(networks)[family]} . ${dice.pick(networks)[family]} : ${dice.pick(["accept", "drop", "return"])} }`,
        "}",
      ],
      ...["set met {", `type ${type}`, "size 100", "flags dynamic", "}"],
      ...["map marks {", `type inet_service : mark`, `elements = { ${dice.pick(ports)} : ${dice.pick(MARKS)} }`, "}"],
      ...[
        "map verdicts {",
        `type ${type} : verdict`,
        `elements = { ${list([...new Set(some)].map((address) => `${address} : ${dice.pick(["accept", "drop", "return"])}`))} }`,
        "}",
      ],
    );
    this.#setFamily = family;
  }

  #setFamily: Family | undefined;

  #l3(): Family {
    return this.#family === "ip" || this.#family === "ip6" ? this.#family : this.#dice.pick(["ip", "ip6"]);
  }

  #rules(most: number): string[] {
    return Array.from({ length: 1 + this.#dice.below(most) }, () => this.#rule());
  }

  #rule(): string {
    const matches = Array.from({ length: this.#dice.pick([0, 1, 1, 1, 2]) }, () => this.#match());
    const action = this.#action();
    // A rule that ends the path of every packet hides the rules after it.
    if (matches.length === 0 && /^(drop|reject|accept|masquerade|snat|return|goto)/.test(action))
      matches.push(this.#match());
    return [...matches, action].join(" ");
  }

  get #hasConntrack(): boolean {
    return this.#family !== "netdev" && this.#family !== "bridge";
  }

  #match(): string {
    const dice = this.#dice;
    if (dice.next() < 0.015) return this.#openMatch();
    const kinds: readonly (() => string)[] = [
      () => this.#address(),
      () => this.#address(),
      () => this.#port(),
      () => this.#port(),
      () => `meta l4proto ${dice.pick(["tcp", "udp", "{ tcp, udp }"])}`,
      () => this.#interface(),
      () => `meta mark ${dice.pick(MARKS)}`,
      () => `meta mark & 1 == ${dice.pick([0, 1])}`,
      ...(this.#sets.length > 0 ? [() => this.#fromSet(), () => this.#fromSet()] : []),
      ...(this.#hasConntrack ? [() => this.#connection(), () => this.#connection(), () => this.#connection()] : []),
      ...(this.#hasConntrack && this.#hook !== "ingress" ? [() => this.#fib()] : []),
      () => this.#rare(),
    ];
    return dice.pick(kinds)();
  }

  #address(): string {
    const dice = this.#dice;
    const family = this.#l3();
    const { addresses, networks } = this.#alphabet;
    const end = dice.pick(["saddr", "daddr"]);
    const one = (): string => dice.pick(addresses)[family];
    const value = dice.pick([
      one(),
      one(),
      `{ ${[...new Set([one(), one()])].join(", ")} }`,
      dice.pick(networks)[family],
    ]);
    return `${family} ${end} ${dice.chance(15) ? "!= " : ""}${value}`;
  }

  #port(): string {
    const dice = this.#dice;
    const protocol = dice.pick(["tcp", "udp"]);
    const end = dice.chance(8) ? "sport" : "dport";
    const port = dice.pick(this.#alphabet.ports);
    return dice.pick([
      `${protocol} ${end} ${port}`,
      `${protocol} ${end} ${port}`,
      `${protocol} ${end} != ${port}`,
      `meta l4proto { tcp, udp } th ${end} { ${port}, 443 }`,
      `${protocol} dport 1-1023`,
    ]);
  }

  #interface(): string {
    const dice = this.#dice;
    const name = dice.pick(this.#alphabet.devices);
    return `${dice.pick(["iifname", "oifname"])} ${dice.chance(20) ? "!= " : ""}${dice.pick([`"${name}"`, `"${name}"`, `"${name.slice(0, 3)}*"`, `{ "${name}", "docker0" }`])}`;
  }

  #fromSet(): string {
    const family = this.#setFamily ?? "ip";
    const end = this.#dice.pick(["saddr", "daddr"]);
    return this.#dice.pick([
      `${family} ${end} @plain`,
      `${family} ${end} != @plain`,
      `${family} ${end} @wide`,
      `meta l4proto { tcp, udp } ${family} ${end} . th dport @ends`,
      `${family} ${end} @met`,
      `meta l4proto { tcp, udp } meta mark set th dport map @marks`,
      `${family} ${end} vmap @verdicts`,
    ]);
  }

  #connection(): string {
    const dice = this.#dice;
    const family = this.#l3();
    const address = dice.pick(this.#alphabet.addresses)[family];
    return dice.pick([
      `ct state ${dice.pick(["new", "new", "established", "established,related", "invalid", "untracked", "new,untracked"])}`,
      `ct state ${dice.pick(["new", "established", "invalid"])}`,
      `ct status ${dice.pick(["dnat", "snat", "assured", "confirmed"])}`,
      `ct direction ${dice.pick(["original", "reply"])}`,
      `ct zone ${dice.pick(["0", "!= 0"])}`,
      `ct mark ${dice.pick(MARKS)}`,
      `ct original ${family} ${dice.pick(["saddr", "daddr"])} ${address}`,
      `ct reply ${family} ${dice.pick(["saddr", "daddr"])} ${address}`,
      `meta l4proto { tcp, udp } ct original proto-dst ${dice.pick(this.#alphabet.ports)}`,
    ]);
  }

  #fib(): string {
    const end = this.#hook === "prerouting" || this.#hook === "input" ? ["saddr", "daddr"] : ["daddr"];
    return `fib ${this.#dice.pick(end)} type ${this.#dice.pick(["local", "unicast", "!= local"])}`;
  }

  #rare(): string {
    const dice = this.#dice;
    const family = this.#l3();
    return dice.pick([
      "meta pkttype host",
      ...(dice.chance(40) ? [`${family} dscp cs0`] : []),
      `tcp flags & (syn | ack) == syn`,
      `meta priority ${dice.pick(["none", "0:2", "0:6"])}`,
      `jhash ${family} saddr mod 4 seed 0x${dice.below(1000).toString(16)} < 2`,
      `meta mark set jhash ${family} saddr mod 2${dice.chance(85) ? " seed 0x7" : ""} meta mark 1`,
      "meta nfproto ipv4",
      "meta protocol ip",
      `${dice.pick(["iif", "oif"])} "${dice.pick(this.#alphabet.devices)}"`,
      `${dice.pick(["iifgroup", "oifgroup"])} ${dice.pick(["!= 0", "0", "7"])}`,
      `meta l4proto . th dport { tcp . ${dice.pick(this.#alphabet.ports)}, udp . ${dice.pick(this.#alphabet.ports)} }`,
      ...(this.#sets.length > 0
        ? [
            ...(dice.chance(25) ? ['quota name "enough"', 'limit name "pace"'] : []),
            `${this.#setFamily} saddr . ${this.#setFamily} daddr vmap @pairs`,
          ]
        : []),
      ...(this.#hasConntrack ? ["ct state vmap { established : accept, related : accept, invalid : return }"] : []),
    ]);
  }

  /** Matches whose result is not visible from outside. */
  #openMatch(): string {
    const dice = this.#dice;
    const family = this.#l3();
    return dice.pick([
      "limit rate 1/hour burst 1 packets",
      "limit rate over 5/second",
      "numgen random mod 2 0",
      "numgen inc mod 3 1",
      "tcp sport 33000-45000",
      family === "ip" ? "ip ttl 63" : "ip6 hoplimit 63",
      "meta length > 50",
      "meta skuid 0",
      "meta cpu 0",
      "quota over 300 bytes",
      ...(this.#hasConntrack ? ["ct count over 2"] : []),
    ]);
  }

  #action(): string {
    const dice = this.#dice;
    if (this.#type === "nat" && dice.chance(75)) return this.#nat();
    const isBase = this.#hook !== undefined;
    const rejects =
      this.#hasConntrack &&
      (this.#hook === "input" || this.#hook === "forward" || this.#hook === "output" || this.#hook === "prerouting");
    const target = this.#targets.length > 0 ? dice.pick(this.#targets) : undefined;
    const early = this.#hook === "prerouting" || this.#hook === "output";
    return dice.pick([
      ...["drop", "drop", "drop", "accept", "accept", "counter", "return"],
      ...(rejects ? ["reject", dice.pick(["reject", "meta l4proto tcp reject with tcp reset"])] : []),
      ...(target === undefined ? [] : [`jump ${target}`, `jump ${target}`, `goto ${target}`]),
      `meta mark set ${dice.pick(MARKS)}`,
      `meta mark set meta mark | ${dice.pick([1, 2, 0x4000])}`,
      "meta priority set 0:2",
      `${this.#l3()} dscp set ${dice.pick(["cs0", "cs1", "cs4"])}`,
      this.#l3() === "ip" ? "ip ttl set 33" : "ip6 hoplimit set 33",
      ...(this.#hasConntrack && isBase && early && dice.chance(8)
        ? [
            `ct zone set ${dice.pick([0, 7])}`,
            `${this.#l3()} daddr set ${dice.pick(this.#alphabet.endpoints)[this.#l3()]}`,
          ]
        : []),
      ...(this.#hasConntrack && this.#hook !== "ingress"
        ? [`ct mark set ${dice.pick(MARKS)}`, "ct mark set meta mark", "meta mark set ct mark"]
        : []),
      ...(this.#hasConntrack && isBase && early ? ["notrack"] : []),
      ...(this.#sets.length > 0 ? [`add @met { ${this.#setFamily} saddr }`] : []),
    ]);
  }

  #nat(): string {
    const dice = this.#dice;
    const { endpoints, nodeAddresses } = this.#alphabet;
    const family = this.#l3();
    const word = this.#family === "inet" ? `${family} to` : "to";
    const bracketed = (address: string): string => (family === "ip" ? address : `[${address}]`);
    const endpoint = dice.pick(endpoints)[family];
    if (this.#hook === "prerouting" || this.#hook === "output") {
      const ported = `meta l4proto { tcp, udp } dnat ${word} ${bracketed(endpoint)}:8080`;
      const ports = this.#alphabet.ports;
      const ranged = `${endpoints[0][family]}-${endpoints[1][family]}`;
      return dice.pick([
        ...(dice.chance(10)
          ? [
              `dnat ${word} ${ranged}`,
              "meta l4proto { tcp, udp } redirect to :8080-8090",
              `dnat ${word} ${family} daddr map { ${dice.pick(this.#alphabet.addresses)[family]} : ${endpoint} }`,
              `meta l4proto { tcp, udp } dnat ${word} th dport map { ${dice.pick(ports)} : ${endpoint} }`,
            ]
          : []),
        `dnat ${word} ${endpoint}`,
        ported,
        ported,
        `meta l4proto { tcp, udp } redirect to :${dice.pick(this.#alphabet.ports)}`,
        "redirect",
      ]);
    }
    const node = dice.pick(nodeAddresses)[family];
    const snat = dice.pick([
      ...[`snat ${word} ${node}`, `snat ${word} ${node}`, `snat ${word} ${node} fully-random`],
      `meta l4proto { tcp, udp } snat ${word} ${bracketed(node)}:2000-3000`,
    ]);
    return this.#hook === "input" ? snat : dice.pick(["masquerade", "masquerade", snat]);
  }
}
