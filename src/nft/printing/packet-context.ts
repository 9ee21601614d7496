/** The facts that a rule has established about its packets so far, and the conditions that nft does not print, because a later field implies them. */
import { ARPHRD_ETHER, ETHER_TYPES, transportNamed } from "../lowering/dependencies.js";
import { NfProto } from "../kernel/constants.js";
import type { Family } from "../kernel/kernel.js";
import type { KnownField } from "./field-index.js";
import { protocolOfField } from "../language/fields/packet-fields.js";

/** Headers by their place, from the outermost on. "message": the rest of an ICMP message. */
type Layer = "link" | "network" | "transport" | "message";

/** One condition or statement of the text. */
interface Line {
  text: string;
}

/** A condition that selects a protocol: `ip protocol tcp`, `meta nfproto ipv4`. */
interface Dependency {
  readonly line: Line;
  readonly field: string;
  /** The selected protocol, or the type of an ICMP message. */
  readonly selects: string | number | undefined;
}

const FAMILY_NETWORK: Readonly<Partial<Record<Family, string>>> = { ip: "ip", ip6: "ip6", arp: "arp" };
const MIXED: ReadonlySet<Family> = new Set(["inet", "bridge", "netdev"]);
/** The network protocol of messages that have only one. */
const NETWORK_OF: Readonly<Record<string, string>> = { icmp: "ip", icmpv6: "ip6" };
const VLAN_BITS = 32;
const ETHER_BITS = 112;

export class PacketContext {
  readonly lines: Line[] = [];
  /** The header at each place, if it is known. "unknown": no header with known fields. */
  link: string | undefined;
  network: string | undefined;
  transport: string | undefined;
  icmpType: number | undefined;
  /** Bits before the innermost VLAN header. */
  vlanStart = 0;
  readonly #family: Family;
  #dependencies: Partial<Record<Layer, Dependency>> = {};

  readonly #isPortable: boolean;

  constructor(family: Family, isPortable = false) {
    this.#family = family;
    this.#isPortable = isPortable;
    this.network = FAMILY_NETWORK[family];
    this.link = family === "bridge" ? "ether" : undefined;
  }

  add(text: string): Line {
    const line = { text };
    if (text !== "") this.lines.push(line);
    return line;
  }

  /** Conditions before a statement stay: it only sees packets that match them. */
  keepConditions(): void {
    this.#dependencies = {};
  }

  /** Extension headers imply no condition in text that nft reads. */
  keepNetwork(): void {
    this.#dependencies.network = undefined;
  }

  /** Notes that a condition has selected one value of this field. */
  noteValue({ name }: Pick<KnownField, "name">, value: bigint, line: Line): void {
    const number = Number(value);
    switch (name as string) {
      case "meta l4proto":
      case "ip protocol":
      case "ip6 nexthdr": {
        const selected = transportNamed(number);
        if (name === "ip6 nexthdr" && selected === undefined) return;
        this.transport = selected ?? "unknown";
        return this.#store("transport", line, name!, selected);
      }
      case "meta nfproto": {
        const selected = number === NfProto.ip ? "ip" : number === NfProto.ip6 ? "ip6" : undefined;
        if (this.#family === "inet") this.network = selected ?? "unknown";
        return this.#store("network", line, name!, selected);
      }
      case "meta protocol":
      case "ether type":
      case "vlan type":
        return this.#noteEtherType(name!, number, line);
      case "iiftype":
        if (number === ARPHRD_ETHER && this.#family !== "bridge") this.link = "ether";
        return this.#store("link", line, name!, number === ARPHRD_ETHER ? "ether" : undefined);
      case "icmp type":
      case "icmpv6 type":
        this.icmpType = number;
        // Messages of two types have these fields, so nft adds a condition with both.
        if (number !== 8 && number !== 0 && number !== 128 && number !== 129)
          this.#store("message", line, name!, number);
    }
  }

  #noteEtherType(name: string, value: number, line: Line): void {
    const selected = Object.entries(ETHER_TYPES).find(([, [high, low]]) => high * 256 + low === value)?.[0];
    const isVlan = selected === "vlan" || selected === "8021ad";
    if (name === "meta protocol") {
      if (MIXED.has(this.#family) && this.#family !== "inet" && !isVlan) this.network = selected ?? "unknown";
    } else if (isVlan) {
      this.vlanStart = this.link === "vlan" ? this.vlanStart + VLAN_BITS : ETHER_BITS;
      this.link = "vlan";
    } else if (selected !== undefined) this.network = selected;
    if (name === "vlan type" && isVlan) return;
    this.#store(isVlan && name !== "meta protocol" ? "link" : "network", line, name, selected);
  }

  #store(layer: Layer, line: Line, field: string, selects: Dependency["selects"]): void {
    this.#dependencies[layer] = { line, field, selects };
  }

  /** Removes the condition that nft adds before this field by itself. @param isValue whether it is compared with one value. */
  use({ name, entry }: Pick<KnownField, "name" | "entry">, isValue = false): void {
    const protocol = protocolOfField(name ?? "");
    const { source } = entry;
    if (source.from === "exthdr" && !this.#isPortable) {
      if (source.op === 1) this.#leaveOut("transport", ({ selects }) => selects === "tcp");
      else this.#leaveOut("network", ({ selects }) => selects === (source.op === 0 ? "ip6" : "ip"));
    }
    if (source.from !== "payload") return;
    // A comparison of types alone does not imply that they are nested.
    const isNested = isValue && name === "vlan type" && MIXED.has(this.#family);
    if (source.base === "link")
      this.#leaveOut("link", ({ selects }) => selects === "ether" || (selects === protocol && !isNested));
    else if (source.base === "network") this.#leaveOut("network", ({ selects }) => selects === protocol);
    else if (source.base === "transport") this.#useTransport(protocol, entry.messages);
  }

  #useTransport(protocol: string, messages: readonly number[] | undefined): void {
    const { transport } = this.#dependencies;
    if (transport === undefined)
      return this.#leaveOut("message", ({ selects }) => messages?.includes(Number(selects)) === true);
    // In these families, a field of IP's header also tells the version.
    const tellsVersion = transport.field !== "meta l4proto" && MIXED.has(this.#family);
    if (tellsVersion || transport.selects !== protocol) return;
    this.#leaveOut("transport", () => true);
    // For these, nft compares the type in the Ethernet header.
    const isOther = (field: string): boolean =>
      this.#isPortable && this.#family === "bridge" && field === "meta protocol";
    this.#leaveOut("network", ({ selects, field }) => selects === NETWORK_OF[protocol] && !isOther(field));
  }

  /** `reject with icmp …` and `reject with tcp reset` imply their protocols. */
  useReject(isReset: boolean): void {
    if (!isReset && MIXED.has(this.#family)) this.#leaveOut("network", ({ selects }) => selects === this.network);
    if (isReset && !MIXED.has(this.#family)) this.#leaveOut("transport", ({ selects }) => selects === "tcp");
  }

  #leaveOut(layer: Layer, isImplied: (dependency: Dependency) => boolean): void {
    const dependency = this.#dependencies[layer];
    // No field implies an unknown protocol.
    if (dependency?.selects === undefined || !isImplied(dependency)) return;
    if (this.#isPortable && !this.#isAddedByNft(dependency)) return;
    dependency.line.text = "";
    this.#dependencies[layer] = undefined;
  }

  /** Whether nft adds this condition in this place, so that it reads the same expressions. */
  #isAddedByNft({ line, field }: Dependency): boolean {
    const removable = new Set(Object.values(this.#dependencies).map((one: Dependency | undefined) => one?.line));
    const after = this.lines.slice(this.lines.indexOf(line) + 1).filter(({ text }) => text !== "");
    return field !== "ip protocol" && field !== "ip6 nexthdr" && after.every((one) => removable.has(one));
  }

  get isInet(): boolean {
    return this.#family === "inet";
  }

  /** Whether all packets of the table have one IP version. */
  get hasOneVersion(): boolean {
    return !MIXED.has(this.#family);
  }

  get text(): string {
    return this.lines
      .map(({ text }) => text)
      .filter((text) => text !== "")
      .join(" ");
  }
}
