/** Inspects this node and reports what would change with nft-proxier. Nothing here writes, loads or sends anything. */
import { access, constants } from "node:fs/promises";
import { cpus, release } from "node:os";
import { join } from "node:path";
import type { NodeRecord } from "../../objects/records.js";
import { formatAddress, type IpFamily } from "../../base/ip.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { reasonOf } from "../../base/unknown.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { inspectFirewalls, interfaceNames } from "../../tools/node-inspection.js";
import { readForeignChains } from "../../tools/explain/firewall/foreign-chains.js";
import type { RuleInfo } from "../../nft/kernel/kernel.js";
import type { RoutedKernel } from "../../tools/explain/world/routing.js";
import {
  packetsOf,
  packetsOfAny,
  type ServedPackets,
  type ServicePacket,
} from "../../tools/explain/firewall/service-packets.js";
import type { LegacyTables } from "../../nft/kernel/legacy-tables.js";
import { IPVS_INTERFACE } from "../leftovers/ipvs-names.js";
import {
  isUnspecified,
  type LocalAddress,
  nodeFacts,
  nodePortAddresses,
  type NodeFacts,
  type NodePortPlaces,
} from "../../node/node-facts.js";
import type { KernelFamilies } from "../../node/kernel-families.js";
import { findSkippingBridges } from "../../node/forwarding.js";
import { readNumber } from "../../node/kernel-number.js";
import { readRoutes } from "../../node/routes.js";
import { findOverlaps } from "../../node/service-cidr-overlaps.js";
import { oldKernelWarning } from "../../node/kernel-release.js";
import {
  conntrackFill,
  conntrackFull,
  forwardingOff,
  readSysctl,
  type Shortcoming,
} from "../../node/packet-settings.js";
import { conntrackSettings } from "../../node/system-settings.js";
import { rulesetOptions } from "../../proxier/ruleset-options.js";
import type { RulesetOptions } from "../../ruleset/family-ruleset.js";
import {
  checkConfig,
  checkConntrack,
  checkDetector,
  checkNodePorts,
  type ConfigReading,
  type SettingFacts,
} from "./configuration.js";
import { type Finding, inOrder, note, of, ok, type Said } from "./finding.js";
import { checkFootprint, type ElementCount } from "./footprint.js";
import { checkHooks, isProxysRule } from "./hooks.js";
import { processWith, readListeners } from "../../node/socket-listeners.js";
import { checkMode, type ModeFacts, modesOf, readMode } from "./mode.js";
import { checkModules, type ModuleFacts } from "./modules.js";
import { checkObjects, type ObjectFacts } from "./objects.js";
import { checkPorts, colliding, type PortFacts } from "./ports.js";
import { checkServiceCIDRs } from "./service-cidrs.js";
import { checkTrial, countElements, tryRules } from "./trial.js";

export interface PreflightKernel extends RoutedKernel {
  readonly legacy: Pick<LegacyTables, "chains" | "rules" | "forwardDrops" | "layout">;
}

export interface PreflightOptions {
  readonly reading: ConfigReading;
  readonly nodeName: string;
  /** This node's object. Undefined if it was not available. */
  readonly node: NodeRecord | undefined;
  readonly objects: ObjectFacts;
  readonly families: KernelFamilies;
  readonly modules: ModuleFacts;
  /** Undefined if a request would make the kernel load nf_tables. */
  readonly kernel: PreflightKernel | undefined;
  /** False if trying the rules would make the kernel load modules. */
  readonly mayTry: boolean;
  /** Addresses of interfaces, used if the kernel is not asked. */
  readonly local: readonly LocalAddress[];
  /** Directory that contains /proc and /sys. Default "/". */
  readonly root?: string;
}

/** Returns problems first. Rejects with KernelError if the kernel cannot be asked. */
export async function preflight(options: PreflightOptions): Promise<Finding[]> {
  const { reading, objects, modules, kernel, root = "/" } = options;
  const families = options.families.families;
  const { config } = reading.loaded;
  const mode = await readMode(kernel, families, { root, legacy: kernel?.legacy });
  const local = kernel === undefined ? options.local : await localAddresses(kernel.interfaces);
  const facts = nodeFacts(config, options.nodeName, options.node);
  const places = families.map((family) => ({ family, places: nodePortAddresses(config, facts, family, local) }));
  const nodeKnown = options.node !== undefined || !isUnspecified(config.bindAddress);
  const interfaces = await interfaceNames(root);
  const routeLocalnet = await readSysctl("net.ipv4.conf.all.route_localnet", root);
  const nodePorts = { config, input: reading.loaded.input, mode, places, local, nodeKnown, routeLocalnet };
  const detector = { config, interfaces, node: nodeKnown ? facts : undefined, families: options.families };
  return inOrder([
    ...of("mode", "mode", checkMode(mode)),
    ...of("configuration", "config", checkConfig(reading)),
    ...of("configuration", "node-ports", checkNodePorts(nodePorts)),
    ...of("configuration", "conntrack", checkConntrack(await settingFacts(config, root))),
    ...of("configuration", "detect-local", checkDetector(detector)),
    ...of("configuration", "ports", checkPorts(await portFacts(config, local, mode, root))),
    ...(await checkKernel(options.families, root)),
    ...of("kernel", "modules", checkModules(modules)),
    ...of("kernel", "rules", await rulesSaid(options, facts, places)),
    ...(await hookFindings(options, mode)),
    ...of("objects", "objects", checkObjects(objects)),
    ...of("objects", "service-cidrs", await serviceCIDRsSaid(options, facts, local)),
    ...of("objects", "footprint", await footprintSaid(options, facts, places)),
  ]);
}

/** Excludes VIPs that kube-proxy's IPVS mode gives the node, because node ports are not served there. */
async function localAddresses(interfaces: PreflightKernel["interfaces"]): Promise<LocalAddress[]> {
  const all = (await interfaces.addresses()).filter(({ interfaceName }) => interfaceName !== IPVS_INTERFACE);
  const texts = new Map(all.map(({ family, address }) => [formatAddress(address), family]));
  return Array.from(texts, ([address, family]) => ({ family, address }));
}

async function settingFacts({ conntrack }: ProxyConfig, root: string): Promise<SettingFacts[]> {
  return Promise.all(
    conntrackSettings(conntrack).map(async (setting) => ({
      ...setting,
      present: await readNumber({ root }, setting.file),
      writable: await access(join(root, setting.file), constants.W_OK).then(
        () => true,
        () => false,
      ),
    })),
  );
}

async function portFacts(
  config: ProxyConfig,
  local: readonly LocalAddress[],
  mode: ModeFacts,
  root: string,
): Promise<PortFacts> {
  const taken = colliding(config, await readListeners(root));
  const listeners = await Promise.all(
    taken.map(async (listener) => {
      const process = await processWith(listener.inode, root);
      return { ...listener, process };
    }),
  );
  return { config, listeners, local, proxyHere: modesOf(mode).length > 0 };
}

/** Checks the kernel's version, its families, and settings other than rules that affect packets. */
async function checkKernel({ families, noIPv6 }: KernelFamilies, root: string): Promise<Finding[]> {
  const old = oldKernelWarning();
  const noted = (one: Shortcoming | undefined): Said[] => (one === undefined ? [] : [note(one.what, one.remedy)]);
  const off = await Promise.all(families.map((family) => forwardingOff(family, root)));
  const ipv6 = noIPv6 === undefined ? [] : [note(`no IPv6 (${noIPv6}), so only the IPv4 table would be written`)];
  return [
    ...of("kernel", "version", [old === undefined ? ok(`Linux ${release()}`) : note(old)]),
    ...of("kernel", "ipv6", ipv6),
    ...of("kernel", "forwarding", off.flatMap(noted)),
    ...of("kernel", "conntrack-table", noted(conntrackFull(await conntrackFill(root)))),
  ];
}

/** Where node ports are served, by family. */
type FamilyPlaces = readonly { readonly family: IpFamily; readonly places: NodePortPlaces }[];

function optionsFor(
  family: IpFamily,
  { loaded }: ConfigReading,
  facts: NodeFacts,
  places: FamilyPlaces,
): RulesetOptions {
  const nodePorts = places.find((each) => each.family === family)?.places ?? { addresses: "all" };
  return rulesetOptions(loaded.config, facts, family, nodePorts);
}

/** For the cluster's services, if they were read. */
async function footprintSaid(
  { objects, reading }: PreflightOptions,
  facts: NodeFacts,
  places: FamilyPlaces,
): Promise<Said[]> {
  if (!("views" in objects)) return [];
  const rules = new Map<IpFamily, ElementCount>();
  for (const [family, services] of objects.views) {
    rules.set(family, await countElements({ family, options: optionsFor(family, reading, facts, places), services }));
  }
  const sum = (what: "services" | "endpoints"): number => objects.counts.reduce((all, each) => all + each[what], 0);
  return checkFootprint({ services: sum("services"), endpoints: sum("endpoints"), rules, cpus: cpus().length });
}

/** Compares networks of this node with the ServiceCIDRs, if these were read. */
async function serviceCIDRsSaid(
  { objects, reading, node, root = "/" }: PreflightOptions,
  facts: NodeFacts,
  local: readonly LocalAddress[],
): Promise<Said[]> {
  if (!("views" in objects)) return [];
  const { serviceCIDRs, clusterIPs, views } = objects;
  const { clusterCIDRs } = reading.loaded.config;
  const networks = { clusterCIDRs, podCIDRs: facts.podCIDRs, nodeIPs: node?.hostIPs ?? [], local };
  const overlaps = findOverlaps({ serviceCIDRs, ...networks, routes: await readRoutes(root), clusterIPs });
  return checkServiceCIDRs({ serviceCIDRs, overlaps, views });
}

/** Tries the rules as this node would get them. */
async function rulesSaid(
  { kernel, mayTry, objects, reading, families }: PreflightOptions,
  facts: NodeFacts,
  places: FamilyPlaces,
): Promise<Said[]> {
  if (kernel === undefined || !mayTry) {
    const what =
      "the rules were not tried, because the kernel would load modules for them, and `preflight` changes nothing";
    return [note(what, "use --load-modules to try them; the modules then stay loaded, as after the first start")];
  }
  const said: Said[] = [];
  for (const family of families.families) {
    const options = optionsFor(family, reading, facts, places);
    const services = ("views" in objects ? objects.views.get(family) : undefined) ?? new Map<string, never>();
    try {
      said.push(...checkTrial(await tryRules({ kernel, family, options, services }), services.size > 0));
    } catch (error) {
      said.push(note(`the ${FAMILY_NAMES[family]} rules could not be tried: ${reasonOf(error)}`));
    }
  }
  return said;
}

async function hookFindings(
  { kernel, objects, reading, families: { families }, root = "/" }: PreflightOptions,
  mode: ModeFacts,
): Promise<Finding[]> {
  const { config } = reading.loaded;
  const bridges = await findSkippingBridges({ config, families, root });
  const seen = { mode, bridges, hasServices: "views" in objects };
  if (kernel === undefined) return checkHooks({ ...seen, chains: [], firewalls: undefined });
  const { masqueradeBit } = config.nftables;
  const { legacy } = kernel;
  const [chains, firewalls] = await Promise.all([
    readForeignChains(kernel, families),
    inspectFirewalls({ kernel, legacy, root, masqueradeBit, isMet: isKept }, servedBy(objects, families)),
  ]);
  return checkHooks({ ...seen, chains, firewalls });
}

/** kube-proxy's own rules are gone after the change. */
const isKept = (rule: RuleInfo): boolean => !isProxysRule(rule);

/** The packets of the known services, or else of any service. */
function servedBy(objects: ObjectFacts, families: readonly IpFamily[]): ServedPackets {
  if (!("views" in objects)) return { families, services: ["services"], packets: () => packetsOfAny(families) };
  const all = [...objects.views];
  function* packets(service: string): Iterable<ServicePacket> {
    for (const [family, ofFamily] of all) {
      for (const view of ofFamily.get(service) ?? []) yield* packetsOf(family, view);
    }
  }
  return { families, services: new Set(all.flatMap(([, ofFamily]) => [...ofFamily.keys()])), packets };
}
