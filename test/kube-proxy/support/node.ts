/** A node with an API server, on which kube-proxy and nft-proxier start one after the other or at once. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";

import type { KubeJson } from "../../lab/api-server/api-server.ts";
import { eventually } from "../../lab/eventually.ts";
import { Api } from "../../packets/support/api.ts";
import { Cluster } from "../../packets/support/cluster.ts";
import {
  configuration,
  type Manifest,
  nodeObject,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "../../packets/support/objects.ts";
import type { LogLine } from "../../support/log.ts";
import { iptables, KubeProxy, type Mode } from "./kube-proxy.ts";

/** nft-proxier as in a cluster. */
export class NftProxier {
  readonly process: ChildProcess;
  #log = "";

  constructor(process: ChildProcess) {
    this.process = process;
    process.stderr?.on("data", (chunk: Buffer) => (this.#log += chunk.toString()));
  }

  get lines(): readonly LogLine[] {
    return this.#log
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as LogLine);
  }

  said(part: string): readonly LogLine[] {
    return this.lines.filter(({ msg }) => msg.includes(part));
  }

  async untilActive(): Promise<void> {
    await eventually(() => expect(this.said("rules active")).not.toEqual([]));
  }

  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, "exit");
    this.process.kill(signal);
    await exited;
  }
}

export class Node {
  readonly cluster: Cluster;
  readonly api: Api;
  readonly #directory: string;
  #kubeProxies: KubeProxy[] = [];
  #nftProxiers: NftProxier[] = [];

  private constructor(cluster: Cluster, api: Api, directory: string) {
    this.cluster = cluster;
    this.api = api;
    this.#directory = directory;
  }

  /** The API server has these services, the Node and the ServiceCIDR. Destroying the node destroys the cluster. */
  static async create(services: readonly ServiceSpec[], cluster?: Cluster): Promise<Node> {
    const used = cluster ?? (await Cluster.create());
    const api = await Api.start(used.node);
    const node = new Node(used, api, await mkdtemp(join(tmpdir(), "nft-proxier-node-")));
    await node.put([nodeObject(), serviceCIDRObject()]);
    await node.putServices(services);
    return node;
  }

  async put(objects: readonly Manifest[]): Promise<void> {
    await this.api.call("put", objects as unknown as readonly KubeJson[]);
  }

  async putServices(services: readonly ServiceSpec[]): Promise<void> {
    await this.put(services.flatMap((service) => serviceObjects(this.cluster.lab, service)));
  }

  /** Resolves when its rules are written. */
  async startKubeProxy(mode: Mode, settings: Manifest = {}): Promise<KubeProxy> {
    const started = await KubeProxy.launch(this.cluster.node, { mode, kubeconfig: this.api.kubeconfig, settings });
    this.#kubeProxies.push(started);
    await started.synced();
    return started;
  }

  /** Writes a configuration for nft-proxier that points to the API server. Returns its path. */
  async configure(settings?: Manifest): Promise<string> {
    const kubeconfig = join(this.#directory, "kubeconfig");
    await writeFile(kubeconfig, this.api.kubeconfig);
    const config = join(this.#directory, "config.json");
    await writeFile(config, JSON.stringify(configuration({ clientConnection: { kubeconfig }, ...settings })));
    return config;
  }

  /** Resolves when its rules are active. */
  async startNftProxier(settings?: Manifest): Promise<NftProxier> {
    const started = new NftProxier(this.cluster.start(["--config", await this.configure(settings)]));
    this.#nftProxiers.push(started);
    await started.untilActive();
    return started;
  }

  /** Ends all programs. */
  async endAll(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    for (const one of [...this.#kubeProxies.splice(0), ...this.#nftProxiers.splice(0)]) await one.end(signal);
  }

  /** Ends all programs, and removes all rules of any program. */
  async clear(): Promise<void> {
    await this.endAll();
    await this.cluster.node.mustRun(["nft", "flush", "ruleset"]);
    for (const program of ["iptables", "ip6tables"]) {
      for (const table of ["nat", "filter", "mangle"]) {
        for (const what of ["-F", "-X"])
          await iptables(this.cluster.node, "iptables-legacy", [program, "-t", table, what]);
      }
    }
  }

  async destroy(): Promise<void> {
    await this.endAll();
    await rm(this.#directory, { recursive: true, force: true });
    await this.cluster.destroy();
  }
}
