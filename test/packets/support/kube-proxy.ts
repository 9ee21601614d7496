/**
 * The rules that kube-proxy 1.36 writes in nftables mode for the services of the packet tests: the transaction of its
 * first full sync, as text for nft. Works on top of any contents of its table. Based on pkg/proxy/nftables/proxier.go:
 * setupNFTables, syncProxyRules, nftElementStorage.
 */
import type { Transport } from "../../lab/agent.ts";
import { drawRule, hashed, MARK, setUp, TABLE } from "../../lab/kube-proxy-rules.ts";
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

/** Sets and maps whose existing elements it compares. */
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

/** An element in nft's JSON form, and as text. */
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

/** kube-proxy at its start on a node, in one family. */
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

  /**
   * Node ports answer on every local address: `everywhere` means nodePortAddresses 0.0.0.0/0 and ::/0; otherwise it is
   * `primary`.
   */
  constructor(lab: Lab, family: Family, everywhere = false) {
    this.#lab = lab;
    this.#everywhere = everywhere;
    this.#family = family;
    this.#table = `${family} ${TABLE}`;
    this.#addressType = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  }

  /**
   * Does the first sync, in one transaction. Returns the chains that it flushed. The next sync, a second later or more,
   * deletes them with `deleteChains`.
   */
  async sync(services: readonly ServiceSpec[]): Promise<readonly string[]> {
    this.#lines = [];
    this.#elements = new Map(STORAGES.map(([, name]) => [name, new Map()]));
    this.#chains.clear();
    this.#affinitySets.clear();
    const existing = await this.#existingElements();
    this.#add(
      ...setUp(this.#family, {
        nodeAddresses: this.#everywhere ? "all" : [PLAN.node[this.#family]],
        clusterCIDR: PLAN.clusterCIDR[this.#family],
        serviceCIDR: PLAN.serviceCIDR[this.#family],
      }),
    );
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

  /** The existing elements of the table's sets and maps. */
  async #existingElements(): Promise<ReadonlyMap<Storage, ReadonlyMap<string, string>>> {
    const all = new Map<Storage, ReadonlyMap<string, string>>();
    for (const [kind, name] of STORAGES) {
      const done = await this.#lab.node.run(["nft", "-j", "list", kind, ...this.#table.split(" "), name]);
      // The table is missing: this is the first start on this node.
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

  /** Adds one service port. */
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

  /** Adds the chain that draws from a list of endpoints. */
  #list(chain: string, base: string, protocol: Transport, pods: readonly Pod[], spec: ServiceSpec): void {
    this.#chain(chain);
    if (spec.affinitySeconds !== undefined) {
      const names = pods.map((pod) => this.#endpointName(base, pod));
      const draw = names.map((name, index) => `${index} : goto endpoint-${name}`).join(" , ");
      for (const name of names) this.#rule(chain, `${this.#family} saddr @affinity-${name} goto endpoint-${name}`);
      this.#rule(chain, `numgen random mod ${pods.length} vmap { ${draw} }`);
      return;
    }
    const endpoints = pods.map((pod) => [pod.address[this.#family], POD_PORT] as const);
    this.#rule(chain, drawRule(this.#family, protocol, endpoints));
  }
}
