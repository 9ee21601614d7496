/** Checks the changes that the configuration would cause on this node, and settings that do not fit the node. Pure. */
import type { ConfigProblem } from "../../config/config-error.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { expandNodePortAddresses, servesLocalhost } from "../../config/node-port-addresses.js";
import { type LoadedConfig } from "../../config/load.js";
import { isLoopback, type LocalAddress, type NodeFacts, type NodePortPlaces } from "../../node/node-facts.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { checkFamilies, type KernelFamilies } from "../../node/kernel-families.js";
import { missingPodBridge } from "../../node/forwarding.js";
import type { DesiredNumber } from "../../node/kernel-number.js";
import type { IpFamily } from "../../base/ip.js";
import { named, note, ok, problem, type Said } from "./finding.js";
import { isOtherMode, type Mode, type ModeFacts, modesOf } from "./mode.js";

/** The result of the program's own loader for file and flags. */
export type ConfigReading =
  | { readonly loaded: LoadedConfig }
  | {
      /** The defaults, which are checked instead. */
      readonly loaded: LoadedConfig;
      readonly refused: readonly ConfigProblem[];
      readonly file: string;
    };

export function checkConfig(reading: ConfigReading): Said[] {
  const { warnings, notes } = reading.loaded;
  const said = [...warnings, ...notes].map((text) => note(text));
  if (!("refused" in reading)) {
    return said.length > 0 ? said : [ok("the configuration is valid, and no field is ignored")];
  }
  const { refused, file } = reading;
  const wrong = refused.map(({ path, message }) =>
    problem(`${file}: ${path === "" ? "" : `${path}: `}${message}`, "correct it; otherwise nft-proxier does not start"),
  );
  return [...wrong, note("the other checks ran with the defaults"), ...said];
}

export interface NodePortFacts {
  readonly config: ProxyConfig;
  readonly input: LoadedConfig["input"];
  readonly mode: ModeFacts;
  /** Where node ports would be served, by family. */
  readonly places: readonly { readonly family: IpFamily; readonly places: NodePortPlaces }[];
  readonly local: readonly LocalAddress[];
  /** Whether the Node object was available to show which IPs are the node's own. */
  readonly nodeKnown: boolean;
  /** net.ipv4.conf.all.route_localnet. */
  readonly routeLocalnet: number | undefined;
}

/** Compares where node ports are served now and would be served then. */
export function checkNodePorts(facts: NodePortFacts): Said[] {
  const { config, mode, places, nodeKnown } = facts;
  const modes = modesOf(mode);
  const needsNode = !nodeKnown && expandNodePortAddresses(config.nodePortAddresses).includes("primary");
  const where = needsNode ? "the node's own IPs" : placesText(places);
  if (!isOtherMode(modes)) {
    return [ok(`nft-proxier would serve node ports on ${where}${needsNode ? " (the Node object was not read)" : ""}`)];
  }
  const count = nodePortsNow(mode);
  if (count === 0) return [ok("kube-proxy serves no node port on this node, so none is lost")];
  // If existing node ports cannot be counted, it is not certain that any is lost.
  const lost = count === undefined ? note : problem;
  const said = [...addressesLost(facts, where, lost), ...localhostLost(facts, modes, lost)];
  return said.length > 0 ? said : [ok(`nft-proxier would serve node ports on ${where}, as kube-proxy does now`)];
}

/** Returns undefined if the number is not visible, as in IPVS. */
function nodePortsNow({ iptablesNodePorts, legacyNodePorts, foreign }: ModeFacts): number | undefined {
  if (legacyNodePorts === undefined || foreign.some(({ kind }) => kind === "ipvs")) return undefined;
  return iptablesNodePorts + legacyNodePorts;
}

function placesText(places: NodePortFacts["places"]): string {
  const everywhere = places.every(({ places: { addresses } }) => addresses === "all");
  const texts = places.flatMap(({ family, places: { addresses, localhost } }) => [
    ...(addresses !== "all"
      ? addresses
      : [`all local ${everywhere ? "" : `${FAMILY_NAMES[family]} `}addresses except loopback`]),
    ...(localhost?.nets ?? []),
  ]);
  return texts.length === 0 ? "no address of this node" : [...new Set(texts)].join(", ");
}

/**
 * Without a list, kube-proxy's other modes serve node ports on all local addresses. They follow an explicit list as
 * well.
 */
function addressesLost(
  { input, places, local, nodeKnown }: NodePortFacts,
  where: string,
  lost: typeof problem,
): Said[] {
  if ((input.nodePortAddresses ?? []).length > 0) return [];
  const isServed = ({ family, address }: LocalAddress): boolean =>
    places.some(
      ({ family: of, places: { addresses } }) => of === family && (addresses === "all" || addresses.includes(address)),
    );
  const reachable = local.filter(({ address }) => !isLoopback(address) && !/^fe[89ab]/.test(address));
  const others = reachable.map(({ address }) => address);
  const gone = nodeKnown ? reachable.filter((one) => !isServed(one)).map(({ address }) => address) : others;
  // One address of each family is the node's own, but it is not known which.
  const families = nodeKnown ? 0 : new Set(reachable.map(({ family }) => family)).size;
  if (gone.length <= families) return [];
  const which = nodeKnown ? named(gone) : `the others among ${named(others)}`;
  return [
    lost(
      `kube-proxy's mode here serves node ports on all of the node's addresses; nft-proxier would serve them only on ${where}, no longer on ${which}`,
      'set nodePortAddresses: ["all"] to keep them, or ["primary"] to confirm that the node\'s own IPs are enough',
    ),
  ];
}

function localhostLost(
  { config, input, routeLocalnet }: NodePortFacts,
  modes: readonly Mode[],
  lost: typeof problem,
): Said[] {
  if (!modes.includes("iptables") || routeLocalnet !== 1 || servesLocalhost(config)) return [];
  if (input.iptables?.localhostNodePorts === false) return [];
  const written = expandNodePortAddresses(input.nodePortAddresses ?? []);
  if (written.length > 0 && !written.includes("0.0.0.0/0")) return [];
  return [
    lost(
      "kube-proxy's iptables mode serves node ports on 127.0.0.1 (net.ipv4.conf.all.route_localnet is 1); nft-proxier would not",
      'add "localhost" to nodePortAddresses (["primary", "localhost"]) to keep them, or set iptables.localhostNodePorts: false if nothing uses them',
    ),
  ];
}

/** A setting of the connection tracker, and the kernel's current value. */
export interface SettingFacts extends DesiredNumber {
  /** Undefined if it is not readable or does not exist yet. */
  readonly present: number | undefined;
  /** Whether this process may write it. */
  readonly writable: boolean;
}

export function checkConntrack(settings: readonly SettingFacts[]): Said[] {
  const differing = settings.filter(
    ({ present, desired, onlyUpwards = false }) =>
      present !== desired && !(onlyUpwards && present !== undefined && present > desired),
  );
  if (differing.length === 0) {
    return [ok("the kernel's connection tracking settings already match the configuration")];
  }
  const unread = differing.filter(({ present }) => present === undefined);
  const changed = differing.filter(({ present }) => present !== undefined);
  const said: Said[] = [];
  if (changed.length > 0) {
    const texts = changed.map(({ file, present, desired }) => `${nameOf(file)} ${present} → ${desired}`);
    const readOnly = changed.filter(({ writable }) => !writable);
    const what = `the first start would change ${texts.join(", ")}`;
    const remedy = readOnly.map(({ remedy: how }) => how)[0];
    said.push(
      remedy === undefined
        ? note(what)
        : note(
            `${what}; this process cannot write ${named(readOnly.map(({ file }) => nameOf(file)))}`,
            `if the DaemonSet has no init container with --init-only: ${remedy}`,
          ),
    );
  }
  if (unread.length > 0) {
    const names = named(unread.map(({ file }) => nameOf(file)));
    said.push(note(`the kernel does not have these settings yet; the first start sets them: ${names}`));
  }
  return said;
}

/** Returns "net.netfilter.nf_conntrack_max", or the path if it is not a sysctl. */
function nameOf(file: string): string {
  return file.startsWith("proc/sys/") ? file.slice("proc/sys/".length).replaceAll("/", ".") : `/${file}`;
}

interface DetectorFacts {
  readonly config: ProxyConfig;
  readonly interfaces: readonly string[];
  /** Undefined if the Node object was not available. */
  readonly node: NodeFacts | undefined;
  readonly families: KernelFamilies;
}

/**
 * Checks how this node's pods are detected, and whether that exists here. Compares the families of configuration, Node
 * and kernel.
 */
export function checkDetector({ config, interfaces, node, families }: DetectorFacts): Said[] {
  const said: Said[] = [];
  if (node !== undefined) {
    const { fatal, warnings, notes } = checkFamilies(config, node, families);
    if (fatal !== undefined)
      said.push(problem(fatal.message, "correct the configuration or the Node; otherwise nft-proxier exits"));
    said.push(...[...warnings, ...notes].map((text) => note(text)));
  }
  return [...said, ...detectorSaid(config, interfaces, node)];
}

function detectorSaid(
  { detectLocalMode, detectLocal, clusterCIDRs }: ProxyConfig,
  interfaces: readonly string[],
  node: NodeFacts | undefined,
): Said[] {
  switch (detectLocalMode) {
    case "ClusterCIDR":
      // If there is none, the loader reports the consequence.
      return clusterCIDRs.length === 0 ? [] : [ok(`pods are identified by clusterCIDR ${clusterCIDRs.join(", ")}`)];
    case "NodeCIDR":
      if (node === undefined)
        return [
          note(
            "pods are identified by the Node's podCIDRs (detectLocalMode NodeCIDR), but the Node object was not read",
          ),
        ];
      if (node.podCIDRs.length > 0)
        return [ok(`pods are identified by the Node's podCIDRs ${node.podCIDRs.join(", ")}`)];
      return [
        problem(
          "detectLocalMode is NodeCIDR, but the Node has no podCIDRs, so nothing is written until it has them",
          "run a controller that allocates podCIDRs, or set another detectLocalMode",
        ),
      ];
    case "BridgeInterface": {
      const missing = missingPodBridge({ detectLocalMode, detectLocal }, interfaces);
      if (missing !== undefined) return [problem(missing.what, missing.remedy)];
      return [ok(`pods are identified by interface ${detectLocal.bridgeInterface}`)];
    }
    case "InterfaceNamePrefix": {
      const { interfaceNamePrefix } = detectLocal;
      const count = interfaces.filter((name) => name.startsWith(interfaceNamePrefix)).length;
      if (count > 0)
        return [ok(`pods are identified by interfaces ${interfaceNamePrefix}…; this node has ${count} now`)];
      return [
        note(
          `no interface name begins with ${interfaceNamePrefix} (detectLocal.interfaceNamePrefix) now, so no traffic is recognized as a pod's`,
          "check the prefix with `ip link` on a node that runs pods",
        ),
      ];
    }
  }
}
