/** A lab with servers in its pods, and the command under test run in its node namespace. */
import type { ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import type { Transport } from "../../lab/agent.ts";
import type { Finished, Namespace } from "../../lab/namespace.ts";
import { patience } from "../../lab/patience.ts";
import { type AddressPair, FAMILIES, Lab, PLAN, type PodOptions } from "../../lab/topology.ts";
import { configuration, type Manifest, nodeObject, POD_PORT, serviceCIDRObject, TRANSPORTS } from "./objects.ts";

/** The command under test; NFT_PROXIER_MAIN names another build of it. */
export const MAIN =
  process.env["NFT_PROXIER_MAIN"] ?? join(dirname(fileURLToPath(import.meta.url)), "../../../dist/main.js");
/** Its startup snapshot, from which the image's daemons start; guests and sanitizers have none. */
const SNAPSHOT = join(dirname(dirname(MAIN)), "daemon.blob");

/** Node, and what it is given before the program's own words, as deploy/image/launcher.cc does it. */
export function programWords(args: readonly string[], main = MAIN): string[] {
  const [first = "-"] = args;
  const serves = first === "run" || first.startsWith("-");
  const flags = serves && main === MAIN && existsSync(SNAPSHOT) ? ["--snapshot-blob", SNAPSHOT] : [];
  return [process.execPath, ...flags, main, ...args];
}

/** The same in its own files, for tests that put something in place of one: in guests MAIN is a single file. */
export const UNBUNDLED_MAIN = join(dirname(fileURLToPath(import.meta.url)), "../../../dist/main.js");

/** a, b: pods of this node, each on a link of its own; c: one on the bridge; r1, r2: pods of the remote node. */
export const PODS: readonly PodOptions[] = [
  { name: "a", on: "node" },
  { name: "b", on: "node" },
  { name: "c", on: "node", link: "bridge" },
  { name: "r1", on: "remote" },
  { name: "r2", on: "remote" },
];

/**
 * An entry that awaits its answer is tracked for seconds: an answer that comes later is for an endpoint that nobody knows of,
 * and slow guests' programs answer late. A half-open association is CLOSED for the kernel (10 s) until the INIT ACK comes by,
 * and COOKIE_WAIT from then on (Linux ab658b9fa7a2).
 */
const HANDSHAKES = {
  "net.netfilter.nf_conntrack_udp_timeout": patience(30),
  "net.netfilter.nf_conntrack_sctp_timeout_closed": patience(10),
  "net.netfilter.nf_conntrack_sctp_timeout_cookie_wait": patience(3),
  "net.netfilter.nf_conntrack_sctp_timeout_cookie_echoed": patience(3),
};

/** Who opens a connection. Without an address the kernel chooses. */
export interface Source {
  readonly namespace: Namespace;
  readonly address?: AddressPair;
}

export class Cluster {
  readonly lab: Lab;
  /** Addresses that masquerading on the node may give a connection. */
  readonly nodeAddresses = new Set(
    [PLAN.node, PLAN.nodeSecond, PLAN.nodeOutside, PLAN.nodeOnLoopback, PLAN.podGateway].flatMap(Object.values<string>),
  );
  readonly #catching = new Map<number, Promise<void>>();
  readonly #sources: Map<string, Source>;
  #directory: string | undefined;

  private constructor(lab: Lab) {
    this.lab = lab;
    this.#sources = new Map<string, Source>([
      ["node", { namespace: lab.node, address: PLAN.node }],
      ["nodeOutside", { namespace: lab.node, address: PLAN.nodeOutside }],
      ["nodeItself", { namespace: lab.node }],
      ["client", { namespace: lab.client, address: PLAN.client }],
      ["clientSecond", { namespace: lab.client, address: PLAN.clientSecond }],
      ["remoteNode", { namespace: lab.remote, address: PLAN.remoteNode }],
      ...lab.pods.map(({ name, namespace, address }): [string, Source] => [name, { namespace, address }]),
    ]);
  }

  /** Every pod but the silent ones answers with its name on POD_PORT, in both families and all three protocols. */
  static async create(pods: readonly PodOptions[] = PODS, silent: readonly string[] = []): Promise<Cluster> {
    if (!existsSync(MAIN)) throw new Error("dist/main.js is missing: npm run build");
    const cluster = new Cluster(await Lab.create({ pods }));
    // Before any test sets its own; where nothing is slow the kernel's own settings stay.
    if (patience(1) > 1) await cluster.node.sysctl(HANDSHAKES);
    const serving = pods.filter(({ name }) => !silent.includes(name));
    await Promise.all(serving.flatMap(({ name }) => TRANSPORTS.map((t) => cluster.serve(name, t, POD_PORT))));
    return cluster;
  }

  /** `name` of the pod unless another is given. */
  async serve(pod: string, transport: Transport, port: number, name = pod): Promise<void> {
    const { namespace, address } = this.lab.pod(pod);
    for (const family of FAMILIES) await namespace.agent().serve(transport, address[family], port, name);
  }

  /**
   * What leaves the node as it was addressed, and what reaches the node's own sockets, is answered on this port by
   * "beyond" and "node".
   */
  catchUntouched(port: number): Promise<void> {
    const known = this.#catching.get(port);
    if (known) return known;
    const serving = this.#serveEverywhere(port);
    this.#catching.set(port, serving);
    return serving;
  }

  async #serveEverywhere(port: number): Promise<void> {
    const { beyond, node } = this.lab;
    for (const transport of TRANSPORTS) {
      await beyond.agent().serve(transport, "*", port, "beyond");
      await node.agent().serve(transport, "*", port, "node");
    }
  }

  /** "client", "node", …, or a pod. */
  source(name: string): Source {
    const known = this.#sources.get(name);
    if (!known) throw new Error(`nobody here is called ${name}`);
    return known;
  }

  /** An address that the node has been given since. */
  addNodeAddress(pair: AddressPair): void {
    for (const family of FAMILIES) this.nodeAddresses.add(pair[family]);
  }

  /** One more name for `source`. */
  addSource(name: string, source: Source): void {
    this.#sources.set(name, source);
  }

  /** Path of the command under test. */
  get main(): string {
    return MAIN;
  }

  /** The node's namespace. */
  get node(): Namespace {
    return this.lab.node;
  }

  /** Runs a subcommand of the command under test in the node's namespace. */
  async command(args: readonly string[]): Promise<Finished> {
    return this.commandBehind([], args);
  }

  /** As `command`, started by another program: one that takes rights away, say. */
  async commandBehind(starter: readonly string[], args: readonly string[]): Promise<Finished> {
    return this.lab.node.run([...starter, ...programWords(args)]);
  }

  /**
   * As `command`, going on until it is ended or the cluster is destroyed; stderr can be read, and stdout when piped.
   * @param main the program, where it is not the one under test.
   */
  start(args: readonly string[], stdout: "ignore" | "pipe" = "ignore", main = MAIN): ChildProcess {
    return this.lab.node.spawn(programWords(args, main), { stdio: ["ignore", stdout, "pipe"] });
  }

  /** Writes manifests and configuration; the Node and ServiceCIDR objects are added unless `bare`. */
  async write(objects: readonly Manifest[], config = configuration(), bare = false): Promise<readonly string[]> {
    this.#directory ??= await mkdtemp(join(tmpdir(), "nft-proxier-packets-"));
    const manifests = join(this.#directory, "manifests");
    await rm(manifests, { recursive: true, force: true });
    await mkdir(manifests);
    const items = bare ? objects : [nodeObject(), serviceCIDRObject(), ...objects];
    await writeFile(join(manifests, "objects.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    const file = join(this.#directory, "config.json");
    await writeFile(file, JSON.stringify(config));
    return ["--manifests", manifests, "--config", file];
  }

  /** `run --once` on these objects. Throws with its output unless it ends with 0. */
  async apply(
    objects: readonly Manifest[],
    config = configuration(),
    bare = false,
    flags: readonly string[] = [],
  ): Promise<Finished> {
    const args = await this.write(objects, config, bare);
    const done = await this.command(["run", ...args, "--once", ...flags]);
    if (done.code !== 0) throw new Error(`run --once: exit ${done.code}\n${done.stdout}${done.stderr}`);
    return done;
  }

  async destroy(): Promise<void> {
    if (this.#directory) await rm(this.#directory, { recursive: true, force: true });
    await this.lab.destroy();
  }
}
