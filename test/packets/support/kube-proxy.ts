/**
 * What kube-proxy 1.36 writes in nftables mode, for the services of the packet tests: the transaction of its first full
 * sync, as text for nft, on whatever its table holds (pkg/proxy/nftables/proxier.go: setupNFTables, syncProxyRules,
 * nftElementStorage).
 */
import { createHash } from "node:crypto";

import type { Transport } from "../../lab/agent.ts";
import { type AddressPair, type Family, type Lab, PLAN, type Pod } from "../../lab/topology.ts";
import {
  clusterAddress,
  externalAddress,
  loadBalancerAddress,
  NAMESPACE,
  nodePortOf,
  POD_PORT,
  SERVICE_PORT,
  type ServiceSpec,
  TRANSPORTS,
} from "./objects.ts";

const TABLE = "kube-proxy";
const MARK = "0x4000";

/** [name, type, hook, priority]. */
const BASE_CHAINS = [
  ["filter-prerouting-pre-dnat", "filter", "prerouting", -110],
  ["filter-output-pre-dnat", "filter", "output", -110],
  ["filter-input", "filter", "input", 0],
  ["filter-forward", "filter", "forward", 0],
  ["filter-output", "filter", "output", 0],
  ["nat-prerouting", "nat", "prerouting", -100],
  ["nat-output", "nat", "output", -100],
  ["nat-postrouting", "nat", "postrouting", 100],
] as const;

/** [to, from, condition]. */
const JUMPS = [
  ["nodeport-endpoints-check", "filter-input", "ct state new "],
  ["service-endpoints-check", "filter-input", "ct state new "],
  ["service-endpoints-check", "filter-forward", "ct state new "],
  ["service-endpoints-check", "filter-output", "ct state new "],
  ["firewall-check", "filter-prerouting-pre-dnat", "ct state new "],
  ["firewall-check", "filter-output-pre-dnat", "ct state new "],
  ["services", "nat-output", ""],
  ["services", "nat-prerouting", ""],
  ["masquerading", "nat-postrouting", ""],
  ["cluster-ips-check", "filter-forward", "ct state new "],
  ["cluster-ips-check", "filter-output", "ct state new "],
] as const;

/** Sets and maps whose elements it compares with what is there. */
const STORAGES = [
  ["set", "cluster-ips"],
  ["map", "service-ips"],
  ["map", "firewall-ips"],
  ["map", "no-endpoint-services"],
  ["map", "no-endpoint-nodeports"],
  ["map", "service-nodeports"],
  ["set", "hairpin-connections"],
] as const;
type Storage = (typeof STORAGES)[number][1];

function base32(bytes: Uint8Array): string {
  let bits = "";
  for (const byte of bytes) bits += byte.toString(2).padStart(8, "0");
  return (bits.match(/.{5}/g) ?? []).map((five) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[parseInt(five, 2)]).join("");
}

/** hashAndTruncate. */
function hashed(name: string): string {
  return `${base32(createHash("sha256").update(name).digest()).slice(0, 8)}-${name}`;
}

/** An element as nft prints it in JSON, and as text. */
type JsonElement = string | number | { readonly [kind: string]: unknown };

function keyText(json: JsonElement): string {
  if (typeof json !== "object") return String(json);
  if (Array.isArray(json["concat"])) return json["concat"].map((part: JsonElement) => keyText(part)).join(" . ");
  const { val } = json["elem"] as { readonly val: JsonElement };
  return keyText(val);
}

function valueText(json: JsonElement): string {
  if (typeof json !== "object") return String(json);
  const [kind, value] = Object.entries(json)[0];
  return value === null ? kind : `${kind} ${(value as { readonly target: string }).target}`;
}

/** kube-proxy as it starts on a node, in one family. */
export class KubeProxyDouble {
  readonly #lab: Lab;
  readonly #family: Family;
  readonly #everywhere: boolean;
  readonly #table: string;
  readonly #addressType: string;
  #lines: string[] = [];
  #elements = new Map<Storage, Map<string, { readonly value: string; readonly comment: string }>>();
  readonly #chains = new Set<string>();
  readonly #affinitySets = new Set<string>();

  /** Node ports answer on every local address: `everywhere` is nodePortAddresses 0.0.0.0/0 and ::/0, else it is `primary`. */
  constructor(lab: Lab, family: Family, everywhere = false) {
    this.#lab = lab;
    this.#everywhere = everywhere;
    this.#family = family;
    this.#table = `${family} ${TABLE}`;
    this.#addressType = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  }

  /**
   * Its first sync, in one transaction. Returns the chains that it flushed and will delete: `deleteChains`, with its next
   * sync, a second later or more.
   */
  async sync(services: readonly ServiceSpec[]): Promise<readonly string[]> {
    this.#lines = [];
    this.#elements = new Map(STORAGES.map(([, name]) => [name, new Map()]));
    this.#chains.clear();
    this.#affinitySets.clear();
    const existing = await this.#existingElements();
    this.#setUp();
    for (const service of services) {
      for (const protocol of service.protocols ?? TRANSPORTS) this.#service(service, protocol);
    }
    const stale = (await this.#names("chain")).filter((name) => name.includes("/") && !this.#chains.has(name));
    for (const name of stale) this.#add(`flush chain ${this.#table} ${name}`);
    for (const name of await this.#names("set")) {
      if (name.startsWith("affinity-") && !this.#affinitySets.has(name)) this.#add(`delete set ${this.#table} ${name}`);
    }
    this.#addElements(existing);
    await this.#run(this.#lines);
    return stale;
  }

  async deleteChains(names: readonly string[]): Promise<void> {
    await this.#run(names.map((name) => `delete chain ${this.#table} ${name}`));
  }

  async #run(lines: readonly string[]): Promise<void> {
    await this.#lab.node.mustRun(["nft", "-f", "-"], { input: `${lines.join("\n")}\n` });
  }

  #add(...lines: readonly string[]): void {
    this.#lines.push(...lines);
  }

  #rule(chain: string, ...rules: readonly string[]): void {
    this.#add(...rules.map((rule) => `add rule ${this.#table} ${chain} ${rule}`));
  }

  #chain(name: string): void {
    this.#chains.add(name);
    this.#add(`add chain ${this.#table} ${name}`, `flush chain ${this.#table} ${name}`);
  }

  /** What a set or map of the table holds already. */
  async #existingElements(): Promise<ReadonlyMap<Storage, ReadonlyMap<string, string>>> {
    const all = new Map<Storage, ReadonlyMap<string, string>>();
    for (const [kind, name] of STORAGES) {
      const done = await this.#lab.node.run(["nft", "-j", "list", kind, ...this.#table.split(" "), name]);
      // Not there: the first start on this node.
      if (done.code !== 0) continue;
      const { nftables } = JSON.parse(done.stdout) as { nftables: Record<string, { elem?: JsonElement[] }>[] };
      const elements = nftables.find((entry) => entry[kind] !== undefined)?.[kind].elem ?? [];
      const pairs = elements.map((element): [string, string] =>
        Array.isArray(element)
          ? [keyText(element[0] as JsonElement), valueText(element[1] as JsonElement)]
          : [keyText(element), ""],
      );
      all.set(name, new Map(pairs));
    }
    return all;
  }

  async #names(kind: "chain" | "set"): Promise<string[]> {
    const done = await this.#lab.node.run(["nft", "-j", "list", `${kind}s`, this.#family]);
    const { nftables } = JSON.parse(done.stdout) as { nftables: Record<string, { table: string; name: string }>[] };
    return nftables.flatMap((entry) => (entry[kind]?.table === TABLE ? [entry[kind].name] : []));
  }

  #want(storage: Storage, key: readonly (string | number)[], value = "", comment = ""): void {
    this.#elements.get(storage)?.set(key.join(" . "), { value, comment });
  }

  #addElements(existing: ReadonlyMap<Storage, ReadonlyMap<string, string>>): void {
    for (const [, name] of STORAGES) {
      const wanted = this.#elements.get(name) ?? new Map<string, { value: string; comment: string }>();
      const there = existing.get(name) ?? new Map<string, string>();
      for (const [key, { value, comment }] of wanted) {
        if (there.get(key) === value) continue;
        if (there.has(key)) this.#add(`delete element ${this.#table} ${name} { ${key} }`);
        const text = `${key}${comment === "" ? "" : ` comment "${comment}"`}${value === "" ? "" : ` : ${value}`}`;
        this.#add(`add element ${this.#table} ${name} { ${text} }`);
      }
      for (const key of there.keys()) {
        if (!wanted.has(key)) this.#add(`delete element ${this.#table} ${name} { ${key} }`);
      }
    }
  }

  #setUp(): void {
    const { addressType, daddr } = { addressType: this.#addressType, daddr: `${this.#family} daddr` };
    const service = `${addressType} . inet_proto . inet_service`;
    const nodePort = "inet_proto . inet_service";
    this.#add(`add table ${this.#table} { comment "rules for kube-proxy" ; }`);
    for (const [name] of BASE_CHAINS)
      this.#add(`add chain ${this.#table} ${name}`, `delete chain ${this.#table} ${name}`);
    for (const [name, type, hook, priority] of BASE_CHAINS) {
      this.#add(
        `add chain ${this.#table} ${name} { type ${type} hook ${hook} priority ${priority} ; }`,
        `flush chain ${this.#table} ${name}`,
      );
    }
    for (const to of new Set(JUMPS.map(([to]) => to))) this.#chain(to);
    for (const [to, from, condition] of JUMPS) this.#rule(from, `${condition}jump ${to}`);
    this.#declare("set", "cluster-ips", addressType, "Active ClusterIPs");
    this.#rule(
      "cluster-ips-check",
      `${daddr} @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"`,
      `${daddr} { ${PLAN.serviceCIDR[this.#family]} } drop comment "Drop traffic to unallocated ClusterIPs"`,
    );
    this.#declare("set", "nodeport-ips", addressType, "IPs that accept NodePort traffic");
    if (this.#everywhere) {
      this.#add(`delete set ${this.#table} nodeport-ips`);
    } else {
      this.#add(`flush set ${this.#table} nodeport-ips`);
      this.#add(`add element ${this.#table} nodeport-ips { ${PLAN.node[this.#family]} }`);
    }
    const nothing = "vmap to drop or reject packets to service";
    this.#declare("map", "no-endpoint-services", `${service} : verdict`, `${nothing}s with no endpoints`);
    this.#declare("map", "no-endpoint-nodeports", `${nodePort} : verdict`, `${nothing} nodeports with no endpoints`);
    this.#add(
      `add chain ${this.#table} reject-chain { comment "helper for @no-endpoint-services / @no-endpoint-nodeports" ; }`,
      `flush chain ${this.#table} reject-chain`,
    );
    this.#rule("reject-chain", "reject");
    const serviceKey = `${daddr} . meta l4proto . th dport`;
    const loopback = this.#family === "ip" ? "127.0.0.0/8" : "::1";
    const nodePortKey = this.#everywhere
      ? `fib daddr type local ${daddr} != ${loopback} meta l4proto . th dport`
      : `${daddr} @nodeport-ips meta l4proto . th dport`;
    this.#rule("service-endpoints-check", `${serviceKey} vmap @no-endpoint-services`);
    this.#rule("nodeport-endpoints-check", `${nodePortKey} vmap @no-endpoint-nodeports`);
    this.#declare(
      "map",
      "firewall-ips",
      `${service} : verdict`,
      "destinations that are subject to LoadBalancerSourceRanges",
    );
    this.#rule("firewall-check", `${serviceKey} vmap @firewall-ips`);
    const hairpin = `${addressType} . ${addressType} . inet_proto . inet_service`;
    this.#declare("set", "hairpin-connections", hairpin, "service hairpin connections");
    this.#rule(
      "masquerading",
      `mark and ${MARK} != 0 mark set mark xor ${MARK} masquerade fully-random`,
      `ct status dnat ${this.#family} saddr . ${this.#family} daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random`,
    );
    this.#declare("map", "service-ips", `${service} : verdict`, "ClusterIP, ExternalIP and LoadBalancer IP traffic");
    this.#declare("map", "service-nodeports", `${nodePort} : verdict`, "NodePort traffic");
    const notLocal = `${this.#family} saddr != ${PLAN.clusterCIDR[this.#family]}`;
    this.#rule(
      "services",
      `${daddr} @cluster-ips ${notLocal} mark set mark or ${MARK} comment "masquerade clusterIP traffic from outside cluster"`,
      `${serviceKey} vmap @service-ips`,
      `${nodePortKey} vmap @service-nodeports`,
    );
  }

  #declare(kind: "set" | "map", name: string, type: string, comment: string): void {
    this.#add(`add ${kind} ${this.#table} ${name} { type ${type} ; comment "${comment}" ; }`);
  }

  /** One service port. */
  #service(spec: ServiceSpec, protocol: Transport): void {
    const { name, n } = spec;
    const of = (pair: AddressPair): string => pair[this.#family];
    const pods = spec.endpoints.map((endpoint) =>
      this.#lab.pod(typeof endpoint === "string" ? endpoint : endpoint.pod),
    );
    const local = pods.filter(({ on }) => on === "node");
    const base = hashed(`${NAMESPACE}/${name}/${protocol}/${protocol}`);
    const comment = `${NAMESPACE}/${name}:${protocol}`;
    const clusterIP = [of(clusterAddress(n)), protocol, SERVICE_PORT];
    const outside = [loadBalancerAddress(n), externalAddress(n)].map((pair) => [of(pair), protocol, SERVICE_PORT]);
    const nodePort = [protocol, nodePortOf(n)];
    const localOutside = spec.external === "Local";
    const localInside = spec.internal === "Local";

    this.#want("cluster-ips", [of(clusterAddress(n))]);
    for (const pod of local) this.#want("hairpin-connections", [of(pod.address), of(pod.address), protocol, POD_PORT]);
    const nothing = pods.length === 0 ? "goto reject-chain" : "drop";
    if ((localInside ? local : pods).length > 0) {
      this.#want("service-ips", clusterIP, `goto ${localInside ? "local" : "service"}-${base}`);
    } else this.#want("no-endpoint-services", clusterIP, nothing, comment);
    if (pods.length > 0) {
      for (const key of outside) this.#want("service-ips", key, `goto external-${base}`);
      this.#want("service-nodeports", nodePort, `goto external-${base}`);
    }
    if ((localOutside ? local : pods).length === 0) {
      for (const key of outside) this.#want("no-endpoint-services", key, nothing, comment);
      this.#want("no-endpoint-nodeports", nodePort, nothing, comment);
    }
    this.#firewall(spec, base, outside[0]);
    if (spec.affinitySeconds !== undefined) {
      for (const pod of pods) this.#affinityEndpoint(base, protocol, pod, spec.affinitySeconds);
    }
    if (pods.length === 0) return;
    this.#list(`service-${base}`, base, protocol, pods, spec);
    if ((localOutside || localInside) && local.length > 0) this.#list(`local-${base}`, base, protocol, local, spec);
    this.#external(`external-${base}`, base, localOutside, local.length > 0);
  }

  #external(chain: string, base: string, localPolicy: boolean, hasLocal: boolean): void {
    this.#chain(chain);
    if (!localPolicy) {
      this.#rule(chain, `mark set mark or ${MARK}`, `goto service-${base}`);
      return;
    }
    const { ip, ip6 } = PLAN.clusterCIDR;
    this.#rule(
      chain,
      `${this.#family} saddr ${this.#family === "ip" ? ip : ip6} goto service-${base} comment "short-circuit pod traffic"`,
      `fib saddr type local mark set mark or ${MARK} comment "masquerade local traffic"`,
      `fib saddr type local goto service-${base} comment "short-circuit local traffic"`,
      ...(hasLocal ? [`goto local-${base}`] : []),
    );
  }

  #firewall(spec: ServiceSpec, base: string, key: readonly (string | number)[]): void {
    const ranges = (spec.ranges ?? []).filter((range) => range.includes(":") === (this.#family === "ip6"));
    if (ranges.length === 0) return;
    this.#chain(`firewall-${base}`);
    this.#rule(`firewall-${base}`, `${this.#family} saddr != { ${ranges.join(", ")} } drop`);
    this.#want("firewall-ips", key, `goto firewall-${base}`);
  }

  #endpointName(base: string, pod: Pod): string {
    const address = pod.address[this.#family].replaceAll(":", ".");
    return hashed(`${base.slice(9)}__${address}/${POD_PORT}`);
  }

  #to(pod: Pod): string {
    const address = pod.address[this.#family];
    return this.#family === "ip" ? `${address}:${POD_PORT}` : `[${address}]:${POD_PORT}`;
  }

  #affinityEndpoint(base: string, protocol: Transport, pod: Pod, seconds: number): void {
    const name = this.#endpointName(base, pod);
    this.#chain(`endpoint-${name}`);
    this.#affinitySets.add(`affinity-${name}`);
    this.#add(
      `add set ${this.#table} affinity-${name} { type ${this.#addressType} ; flags dynamic,timeout ; timeout ${seconds}s ; }`,
    );
    this.#rule(
      `endpoint-${name}`,
      `update @affinity-${name} { ${this.#family} saddr }`,
      `meta l4proto ${protocol} dnat to ${this.#to(pod)}`,
    );
  }

  /** The chain that draws from a list of endpoints. */
  #list(chain: string, base: string, protocol: Transport, pods: readonly Pod[], spec: ServiceSpec): void {
    this.#chain(chain);
    if (spec.affinitySeconds !== undefined) {
      const names = pods.map((pod) => this.#endpointName(base, pod));
      const draw = names.map((name, index) => `${index} : goto endpoint-${name}`).join(" , ");
      for (const name of names) this.#rule(chain, `${this.#family} saddr @affinity-${name} goto endpoint-${name}`);
      this.#rule(chain, `numgen random mod ${pods.length} vmap { ${draw} }`);
      return;
    }
    const draw = pods.map((pod, index) => `${index} : ${pod.address[this.#family]} . ${POD_PORT}`).join(" , ");
    this.#rule(
      chain,
      `meta l4proto ${protocol} dnat ${this.#family} addr . port to numgen random mod ${pods.length} map { ${draw} }`,
    );
  }
}
