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
/** Startup snapshot of the command, used by the image's daemons; guests and sanitizers have none. */
const SNAPSHOT = join(dirname(dirname(MAIN)), "daemon.blob");

/** Node and its arguments before the program's own, as in deploy/image/launcher.cc. */
export function programWords(args: readonly string[], main = MAIN): string[] {
  const [first = "-"] = args;
  const serves = first === "run" || first.startsWith("-");
  const flags = serves && main === MAIN && existsSync(SNAPSHOT) ? ["--snapshot-blob", SNAPSHOT] : [];
  return [process.execPath, ...flags, main, ...args];
}

/** The same in separate files, for tests that replace one of them: in guests MAIN is a single file. */
export const UNBUNDLED_MAIN = join(dirname(fileURLToPath(import.meta.url)), "../../../dist/main.js");

/** a, b: pods of this node, each on its own link; c: a pod on the bridge; r1, r2: pods of the remote node. */
export const PODS: readonly PodOptions[] = [
  { name: "a", on: "node" },
  { name: "b", on: "node" },
  { name: "c", on: "node", link: "bridge" },
  { name: "r1", on: "remote" },
  { name: "r2", on: "remote" },
];

/**
 * An unanswered entry is tracked only for seconds: a later answer comes from an endpoint that the node no longer knows, and programs in
 * slow guests answer late. The kernel keeps a half-open association as CLOSED (10 s) until the INIT ACK arrives, and then as COOKIE_WAIT
 * (Linux ab658b9fa7a2).
 */
const HANDSHAKES = {
  "net.netfilter.nf_conntrack_udp_timeout": patience(30),
  "net.netfilter.nf_conntrack_sctp_timeout_closed": patience(10),
  "net.netfilter.nf_conntrack_sctp_timeout_cookie_wait": patience(3),
  "net.netfilter.nf_conntrack_sctp_timeout_cookie_echoed": patience(3),
};

/** The origin of a connection. Without an address, the kernel chooses. */
export interface Source {
  readonly namespace: Namespace;
  readonly address?: AddressPair;
}

export class Cluster {
  readonly lab: Lab;
  /** Addresses that masquerading on the node may assign to a connection. */
  readonly nodeAddresses = new Set(
    [PLAN.node, PLAN.nodeSecond, PLAN.nodeOutside, PLAN.nodeOnLoopback, PLAN.podGateway].flatMap(Object.values<string>),
  );
  readonly #catching = new Map<number, Promise<void>>();
  readonly #sources: Map<string, Source>;
  readonly #directories: string[] = [];
  #written: string | undefined;

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

  /** Every pod but the silent ones answers with its name on POD_PORT, in both families and over all three protocols. */
  static async create(pods: readonly PodOptions[] = PODS, silent: readonly string[] = []): Promise<Cluster> {
    if (!existsSync(MAIN)) throw new Error("dist/main.js is missing. Run `npm run build`.");
    const cluster = new Cluster(await Lab.create({ pods }));
    // Set them before any test sets its own; on a fast machine the kernel's defaults stay.
    if (patience(1) > 1) await cluster.node.sysctl(HANDSHAKES);
    const serving = pods.filter(({ name }) => !silent.includes(name));
    await Promise.all(serving.flatMap(({ name }) => TRANSPORTS.map((t) => cluster.serve(name, t, POD_PORT))));
    return cluster;
  }

  /** `name` is the pod's name by default. */
  async serve(pod: string, transport: Transport, port: number, name = pod): Promise<void> {
    const { namespace, address } = this.lab.pod(pod);
    for (const family of FAMILIES) await namespace.agent().serve(transport, address[family], port, name);
  }

  /** Makes "beyond" and "node" answer on this port: packets that leave the node unchanged, and packets to the node's own sockets. */
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
    if (!known) throw new Error(`no client or pod is named ${name}`);
    return known;
  }

  /** Registers an address that was added to the node. */
  addNodeAddress(pair: AddressPair): void {
    for (const family of FAMILIES) this.nodeAddresses.add(pair[family]);
  }

  /** Registers another name for `source`. */
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
    return this.commandThrough([], args);
  }

  /** Like `command`, but started by another program, for example one that drops rights. */
  async commandThrough(starter: readonly string[], args: readonly string[]): Promise<Finished> {
    return this.lab.node.run([...starter, ...programWords(args)]);
  }

  /**
   * Like `command`, but runs until it is ended or the cluster is destroyed. stderr is readable, and stdout if piped.
   * @param main the program, if it is not the one under test.
   */
  start(args: readonly string[], stdout: "ignore" | "pipe" = "ignore", main = MAIN): ChildProcess {
    return this.lab.node.spawn(programWords(args, main), { stdio: ["ignore", stdout, "pipe"] });
  }

  /** Creates a directory that is removed with the cluster. */
  async temporaryDirectory(): Promise<string> {
    const directory = await mkdtemp(join(tmpdir(), "nft-proxier-packets-"));
    this.#directories.push(directory);
    return directory;
  }

  /** Writes manifests and configuration, and adds the Node and ServiceCIDR objects unless `bare`. */
  async write(objects: readonly Manifest[], config = configuration(), bare = false): Promise<readonly string[]> {
    this.#written ??= await this.temporaryDirectory();
    const manifests = join(this.#written, "manifests");
    await rm(manifests, { recursive: true, force: true });
    await mkdir(manifests);
    const items = bare ? objects : [nodeObject(), serviceCIDRObject(), ...objects];
    await writeFile(join(manifests, "objects.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    const file = join(this.#written, "config.json");
    await writeFile(file, JSON.stringify(config));
    return ["--manifests", manifests, "--config", file];
  }

  /** Runs `run --once` on these objects. Throws with its output unless it exits with 0. */
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
    for (const directory of this.#directories) await rm(directory, { recursive: true, force: true });
    await this.lab.destroy();
  }
}
