/**
 * Stands between a source and the proxier. Holds back all writes until the facts about this node are complete, and
 * ends the program if it cannot continue with them. Conditions and times are those of kube-proxy (pkg/proxy/node.go):
 *
 *     first list in ─→ Node has IPs? ─no→ wait 30 s ─→ continue, with loopback as node IP
 *                      NodeCIDR: Node has podCIDRs? ─no→ wait 5 min ─→ fatal
 *                      families, clusterCIDR and podCIDRs fit? ─no→ fatal
 *                      open
 *     later           NodeCIDR: other podCIDRs ─→ fatal: the supervisor restarts us
 *
 * Unlike kube-proxy 1.36, which keeps the node IPs of its start until it is restarted, this proxier adopts new node IPs.
 * Later versions of kube-proxy exit instead, also when the Node is deleted. If the Node loses its IPs or is deleted, the last
 * state is kept. The traffic is still there, and without a node IP node ports would answer on every address.
 */
import { FAMILY_NAMES } from "../base/ip-families.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { Logger } from "../base/logger.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";
import type { NodeObject, NodeRecord } from "../objects/records.js";
import { isLoopback, nodeFacts } from "./node-facts.js";
import { checkFamilies, type KernelFamilies, NodeError } from "./kernel-families.js";

/** Time for the Node to appear and have IPs, ms, counted from the first full list. */
const ADDRESSES_MS = 30_000;
/** Further time for it to be given podCIDRs, ms. */
const POD_CIDRS_MS = 5 * 60_000;

interface NodeGateOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly kernel: KernelFamilies;
  /**
   * True if the Node comes from a cluster: it may still appear, and comes and goes by itself. False if it comes from a
   * file: the first list is complete, so nothing is waited for, and every edit is followed.
   */
  readonly cluster: boolean;
  readonly log: Logger;
  /**
   * Called with each version of this node's Node object. Its deletion is not reported, as in kube-proxy: the node still has
   * its traffic. A taint or deletion timestamp already said that the node should get no new traffic.
   */
  readonly onNode?: (node: NodeRecord) => void;
  /** Called at most once; nothing is passed on afterwards. The program must end with exit code 1. */
  onFatal(error: NodeError): void;
}

type State = "waiting" | "open" | "failed" | "stopped";

export class NodeGate implements ObjectSink {
  /** Resolves when the sink's `synced` has been called; never if that will not happen. */
  readonly opened: Promise<void>;
  readonly #log: Logger;
  #resolveOpened: () => void = () => undefined;
  #state: State = "waiting";
  #listed = false;
  /** Kinds whose first list has not arrived. */
  #pending = new Set<KubeKind>();
  #node: NodeRecord | undefined;
  /** The time to appear and have IPs is over. */
  #addressesDue = false;
  #timer: { readonly handle: NodeJS.Timeout; readonly waitsFor: "addresses" | "podCIDRs" } | undefined;
  /** The Node's podCIDRs when the gate opened. */
  #podCIDRs: readonly string[] = [];

  constructor(
    private readonly sink: ObjectSink,
    private readonly options: NodeGateOptions,
  ) {
    this.#log = options.log;
    this.opened = new Promise((resolve) => (this.#resolveOpened = resolve));
  }

  upsert(object: KubeObject): void {
    if (this.#ended) return;
    if (object.kind !== "Node" || object.name !== this.options.nodeName) return this.sink.upsert(object);
    this.options.onNode?.(object.record);
    this.#upsertNode(object);
  }

  remove(kind: KubeKind, name: string): void {
    if (this.#ended) return;
    if (kind !== "Node" || name !== this.options.nodeName) return this.sink.remove(kind, name);
    if (this.#state === "open" && this.options.cluster) {
      this.#log.warn({ node: name }, "Node object deleted; keeping its last state");
      return;
    }
    this.#node = undefined;
    this.sink.remove(kind, name);
  }

  synced(pending: readonly KubeKind[] = []): void {
    this.#listed = true;
    this.#pending = new Set(pending);
    this.#tryOpen();
  }

  listed(kind: KubeKind): void {
    this.#pending.delete(kind);
    if (this.#state === "open") this.sink.listed?.(kind);
  }

  flush(): void {
    if (this.#state === "open") this.sink.flush();
  }

  /** Missing part of this node's Node object, either waited for or (addresses) given up. Undefined if nothing is missing. */
  get missing(): "addresses" | "podCIDRs" | undefined {
    if (this.#timer !== undefined) return this.#timer.waitsFor;
    return this.#state === "open" && this.#onLoopback ? "addresses" : undefined;
  }

  /** Whether this node's Node object has been listed, and exists. */
  get node(): "unread" | "absent" | "present" {
    if (this.#node !== undefined) return "present";
    return !this.#listed || this.#pending.has("Node") ? "unread" : "absent";
  }

  /** True while the gate waits for the Node, and nothing is written. */
  get waiting(): boolean {
    return this.#timer !== undefined;
  }

  /** Stops all waiting; nothing is passed on afterwards. */
  stop(): void {
    if (this.#state !== "failed") this.#state = "stopped";
    this.#clearTimer();
  }

  get #ended(): boolean {
    return this.#state === "failed" || this.#state === "stopped";
  }

  #upsertNode(object: NodeObject): void {
    const before = this.#node;
    const node = this.options.cluster ? keepAddresses(object.record, before) : object.record;
    this.#node = node;
    if (this.#state === "open" && !this.#mayStay(node)) return;
    this.sink.upsert({ ...object, record: node });
    if (this.#state === "waiting") this.#tryOpen();
    else this.#logMove(before, node);
  }

  /** Returns false, after a fatal error, if the Node changed in a way that only a restart can follow. */
  #mayStay(node: NodeRecord): boolean {
    if (!this.options.cluster || !this.#byNodeCIDR) return true;
    const now = podCIDRsOf(node);
    if (String(now) === String(this.#podCIDRs)) return true;
    const change = `from ${describe(this.#podCIDRs)} to ${describe(now)}`;
    this.#fail(
      new NodeError(
        "pod-cidrs-changed",
        `this node's podCIDRs changed ${change}. Only a restart can follow the change`,
      ),
    );
    return false;
  }

  #logMove(before: NodeRecord | undefined, node: NodeRecord): void {
    const [was, now] = [before?.hostIPs ?? [], node.hostIPs];
    if (String(was) !== String(now)) this.#log.info({ was, now }, "node IPs changed");
  }

  #tryOpen(): void {
    if (this.#state !== "waiting" || !this.#listed || this.#mustWait()) return;
    this.#clearTimer();
    const { config, nodeName, kernel } = this.options;
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
    this.sink.synced([...this.#pending]);
    this.#resolveOpened();
  }

  /** True while something is missing that may still arrive. */
  #mustWait(): boolean {
    const { cluster, nodeName } = this.options;
    if (!cluster) return false;
    if ((this.#node?.hostIPs ?? []).length === 0 && !this.#addressesDue) {
      this.#waitFor("addresses", ADDRESSES_MS, () => {
        this.#addressesDue = true;
        this.#openAfterWait();
      });
      return true;
    }
    if (!this.#byNodeCIDR || podCIDRsOf(this.#node).length > 0) return false;
    this.#waitFor("podCIDRs", POD_CIDRS_MS, () => {
      const missing = {
        unread: "the API server has not listed the Node",
        absent: "the Node does not exist",
        present: "the Node has none",
      }[this.node];
      const hint = "The detectLocalMode NodeCIDR needs a controller that allocates podCIDRs";
      this.#fail(new NodeError("pod-cidrs-timeout", `no podCIDRs for node ${nodeName}: ${missing}. ${hint}`));
    });
    return true;
  }

  #openAfterWait(): void {
    this.#tryOpen();
    // No other event would trigger a write now.
    if (this.#state === "open") this.sink.flush();
  }

  #waitFor(what: "addresses" | "podCIDRs", ms: number, expired: () => void): void {
    if (this.#timer?.waitsFor === what) return;
    this.#clearTimer();
    this.#log.info({ node: this.options.nodeName, missing: what, timeoutMs: ms }, "waiting for the Node object");
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
    this.options.onFatal(error);
  }

  get #onLoopback(): boolean {
    const { config, nodeName } = this.options;
    const { nodeIPs, primary } = nodeFacts(config, nodeName, this.#node);
    return isLoopback(nodeIPs[primary]);
  }

  get #byNodeCIDR(): boolean {
    return this.options.config.detectLocalMode === "NodeCIDR";
  }
}

/** The Node as given if it has an address. Otherwise with the former addresses. */
function keepAddresses(node: NodeRecord, before: NodeRecord | undefined): NodeRecord {
  if (before === undefined || node.hostIPs.length > 0) return node;
  const { addresses, hostIPs, unreadableIP } = before;
  return { ...node, addresses, hostIPs, unreadableIP };
}

function podCIDRsOf(node: NodeRecord | undefined): readonly string[] {
  return (node?.podCIDRs ?? []).map(({ prefix }) => prefix.text);
}

const describe = (cidrs: readonly string[]): string => (cidrs.length === 0 ? "none" : cidrs.join(", "));
