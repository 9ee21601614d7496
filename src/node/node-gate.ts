/**
 * Between a source and the proxier: lets nothing be written before this node's own facts are good, and ends the program
 * where it cannot go on with them. When and how long is kube-proxy's (pkg/proxy/node.go):
 *
 *     first list in ─→ Node has IPs? ─no→ wait 30 s ─→ go on, taking loopback for them
 *                      NodeCIDR: Node has podCIDRs? ─no→ wait 5 min ─→ fatal
 *                      families, clusterCIDR and podCIDRs fit? ─no→ fatal
 *                      open
 *     later           NodeCIDR: other podCIDRs ─→ fatal: the supervisor starts us anew
 *
 * Beyond kube-proxy 1.36, which keeps the node IPs of its start until it is restarted (what comes after 1.36 ends
 * itself, also when the Node goes): other node IPs are taken over as they come. What the Node loses without getting
 * another (its IPs, or itself) is kept as it last was: the traffic is still there, and without a node IP node ports would
 * answer on every address.
 */
import type { V1Node } from "@kubernetes/client-node";
import { FAMILY_NAMES } from "../base/ip-families.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { Logger } from "../base/logger.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";
import { hostIPs, isLoopback, nodeFacts } from "./facts.js";
import { checkFamilies, type KernelFamilies, NodeError } from "./families.js";

/** How long the Node may take to come and have IPs, ms, from the first full list. */
const ADDRESSES_MS = 30_000;
/** How long it may then take to be given podCIDRs, ms. */
const POD_CIDRS_MS = 5 * 60_000;

export interface NodeGateOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly kernel: KernelFamilies;
  /**
   * The Node is a cluster's: it may still come, and comes and goes by itself. False: it is written down, and
   * the first list has all there is. Then nothing is waited for, and every edit is followed.
   */
  readonly cluster: boolean;
  readonly log: Logger;
  /**
   * Told what this node's Node object says, each time. Its deletion says nothing, as with kube-proxy: the node still has its traffic, and
   * the taint or the deletion timestamp before it said that it is to get no more.
   */
  readonly onNode?: (node: V1Node) => void;
  /** Called at most once; nothing is passed on any more. The program is to end with exit code 1. */
  onFatal(error: NodeError): void;
}

type State = "waiting" | "open" | "failed" | "stopped";

export class NodeGate implements ObjectSink {
  /** Resolves when the sink has been told `synced`; never when it is not going to be. */
  readonly opened: Promise<void>;
  readonly #sink: ObjectSink;
  readonly #options: NodeGateOptions;
  readonly #log: Logger;
  #resolveOpened: () => void = () => undefined;
  #state: State = "waiting";
  #listed = false;
  /** Kinds whose first list is still to come. */
  #pending = new Set<KubeKind>();
  #node: V1Node | undefined;
  /** The Node had its time to come and have IPs. */
  #addressesDue = false;
  #timer: { readonly handle: NodeJS.Timeout; readonly waitsFor: "addresses" | "podCIDRs" } | undefined;
  /** As the Node had them when the gate opened. */
  #podCIDRs: readonly string[] = [];

  constructor(sink: ObjectSink, options: NodeGateOptions) {
    this.#sink = sink;
    this.#options = options;
    this.#log = options.log;
    this.opened = new Promise((resolve) => (this.#resolveOpened = resolve));
  }

  upsert(object: KubeObject): void {
    if (this.#ended) return;
    if (object.kind !== "Node" || object.name !== this.#options.nodeName) return this.#sink.upsert(object);
    this.#options.onNode?.(object.object);
    this.#upsertNode(object.object);
  }

  remove(kind: KubeKind, name: string): void {
    if (this.#ended) return;
    if (kind !== "Node" || name !== this.#options.nodeName) return this.#sink.remove(kind, name);
    if (this.#state === "open" && this.#options.cluster) {
      this.#log.warn({ node: name }, "Node object deleted; keeping its last state");
      return;
    }
    this.#node = undefined;
    this.#sink.remove(kind, name);
  }

  synced(pending: readonly KubeKind[] = []): void {
    this.#listed = true;
    this.#pending = new Set(pending);
    this.#tryOpen();
  }

  listed(kind: KubeKind): void {
    this.#pending.delete(kind);
    if (this.#state === "open") this.#sink.listed?.(kind);
  }

  flush(): void {
    if (this.#state === "open") this.#sink.flush();
  }

  /** What of this node's Node object is missing: it is waited for, or (addresses) given up. Undefined: nothing. */
  get missing(): "addresses" | "podCIDRs" | undefined {
    if (this.#timer !== undefined) return this.#timer.waitsFor;
    return this.#state === "open" && this.#onLoopback ? "addresses" : undefined;
  }

  /** Nothing is written before something comes. */
  get waiting(): boolean {
    return this.#timer !== undefined;
  }

  /** Ends all waiting; nothing is passed on any more. */
  stop(): void {
    if (this.#state !== "failed") this.#state = "stopped";
    this.#clearTimer();
  }

  get #ended(): boolean {
    return this.#state === "failed" || this.#state === "stopped";
  }

  #upsertNode(given: V1Node): void {
    const before = this.#node;
    const node = this.#options.cluster ? keepAddresses(given, before) : given;
    this.#node = node;
    if (this.#state === "open" && !this.#mayStay(node)) return;
    this.#sink.upsert({ kind: "Node", name: this.#options.nodeName, object: node });
    if (this.#state === "waiting") this.#tryOpen();
    else this.#logMove(before, node);
  }

  /** False, and fatal, when the Node changed in a way that only a new start can follow. */
  #mayStay(node: V1Node): boolean {
    if (!this.#options.cluster || !this.#byNodeCIDR) return true;
    const now = podCIDRsOf(node);
    if (String(now) === String(this.#podCIDRs)) return true;
    const change = `from ${describe(this.#podCIDRs)} to ${describe(now)}`;
    this.#fail(new NodeError("pod-cidrs-changed", `this node's podCIDRs changed ${change}: a new start follows them`));
    return false;
  }

  #logMove(before: V1Node | undefined, node: V1Node): void {
    const [was, now] = [hostIPs(before), hostIPs(node)];
    if (String(was) !== String(now)) this.#log.info({ was, now }, "node IPs changed");
  }

  #tryOpen(): void {
    if (this.#state !== "waiting" || !this.#listed || this.#mustWait()) return;
    this.#clearTimer();
    const { config, nodeName, kernel } = this.#options;
    const facts = nodeFacts(config, nodeName, this.#node);
    const { fatal, warnings, notes } = checkFamilies(config, facts, kernel);
    for (const warning of warnings) this.#log.warn(warning);
    for (const note of notes) this.#log.info(note);
    if (fatal !== undefined) return this.#fail(fatal);
    if (isLoopback(facts.nodeIPs[facts.primary])) {
      this.#log.warn({ node: nodeName, hint: "set bindAddress" }, "node IP missing; using loopback");
    }
    const families = kernel.families.map((family) => FAMILY_NAMES[family]);
    const { nodeIPs, podCIDRs } = facts;
    this.#log.info({ families, primary: FAMILY_NAMES[facts.primary], nodeIPs, podCIDRs }, "node facts resolved");
    this.#podCIDRs = podCIDRsOf(this.#node);
    this.#state = "open";
    this.#sink.synced([...this.#pending]);
    this.#resolveOpened();
  }

  /** True while something is missing that may still come. */
  #mustWait(): boolean {
    const { cluster, nodeName } = this.#options;
    if (!cluster) return false;
    if (hostIPs(this.#node).length === 0 && !this.#addressesDue) {
      this.#waitFor("addresses", ADDRESSES_MS, () => {
        this.#addressesDue = true;
        this.#openAfterWait();
      });
      return true;
    }
    if (!this.#byNodeCIDR || podCIDRsOf(this.#node).length > 0) return false;
    this.#waitFor("podCIDRs", POD_CIDRS_MS, () => {
      const missing = this.#node === undefined ? "there is no such Node" : "its Node object has none";
      const hint = "detectLocalMode NodeCIDR needs a controller that allocates them";
      this.#fail(new NodeError("pod-cidrs-timeout", `no podCIDRs for node ${nodeName}: ${missing}; ${hint}`));
    });
    return true;
  }

  #openAfterWait(): void {
    this.#tryOpen();
    // No other event comes to say that this is a good time to write.
    if (this.#state === "open") this.#sink.flush();
  }

  #waitFor(what: "addresses" | "podCIDRs", ms: number, expired: () => void): void {
    if (this.#timer?.waitsFor === what) return;
    this.#clearTimer();
    this.#log.info({ node: this.#options.nodeName, missing: what, timeoutMs: ms }, "waiting for the Node object");
    const handle = setTimeout(() => {
      this.#timer = undefined;
      expired();
    }, ms);
    this.#timer = { handle, waitsFor: what };
  }

  #clearTimer(): void {
    clearTimeout(this.#timer?.handle);
    this.#timer = undefined;
  }

  #fail(error: NodeError): void {
    this.#clearTimer();
    this.#state = "failed";
    this.#options.onFatal(error);
  }

  get #onLoopback(): boolean {
    const { config, nodeName } = this.#options;
    const { nodeIPs, primary } = nodeFacts(config, nodeName, this.#node);
    return isLoopback(nodeIPs[primary]);
  }

  get #byNodeCIDR(): boolean {
    return this.#options.config.detectLocalMode === "NodeCIDR";
  }
}

/** Node as given; where it has no address of its own, as much of it as is read, with the addresses of before. */
function keepAddresses(node: V1Node, before: V1Node | undefined): V1Node {
  const addresses = before?.status?.addresses;
  if (addresses === undefined || hostIPs(node).length > 0) return node;
  const { metadata = {}, spec = {} } = node;
  return { metadata, spec, status: { addresses } };
}

/** spec.podCIDRs as they are: what cannot be read counts as well. */
function podCIDRsOf(node: V1Node | undefined): readonly string[] {
  const podCIDRs: unknown = node?.spec?.podCIDRs;
  if (Array.isArray(podCIDRs)) return podCIDRs.map(String);
  const podCIDR: unknown = node?.spec?.podCIDR;
  return typeof podCIDR === "string" && podCIDR !== "" ? [podCIDR] : [];
}

const describe = (cidrs: readonly string[]): string => (cidrs.length === 0 ? "none" : cidrs.join(", "));
