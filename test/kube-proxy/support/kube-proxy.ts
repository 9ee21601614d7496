/** kube-proxy itself, in a namespace of the lab. The environment variable KUBE_PROXY names the program. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import type { Finished, Namespace } from "../../lab/namespace.ts";
import { patience } from "../../lab/patience.ts";
import { FAMILIES } from "../../lab/topology.ts";
import { configuration, type Manifest } from "../../packets/support/objects.ts";
import { type Backend, iptablesPath } from "./iptables.ts";
import { kubeProxyProgram, nftablesGate } from "./program.ts";

/** The place where its programs run. */
export type Host = Pick<Namespace, "run" | "mustRun" | "spawn">;

/** Its modes; one of them with both kinds of iptables. */
export type Mode = "nftables" | "iptables-nft" | "iptables-legacy";
export const MODES: readonly Mode[] = ["nftables", "iptables-nft", "iptables-legacy"];

export interface KubeProxyOptions {
  readonly mode: Mode;
  readonly kubeconfig: string;
  /** Settings merged over the configuration that all tests use. */
  readonly settings?: Manifest;
}

const backendOf = (mode: Mode): Backend => (mode === "iptables-legacy" ? "legacy" : "nft");

/** Returns a KubeProxyConfiguration: the tests' own, plus settings that this program and a namespace need. */
function configurationFor({ mode, settings }: KubeProxyOptions, kubeconfig: string): Manifest {
  return configuration({
    mode: mode === "nftables" ? "nftables" : "iptables",
    // The double speaks JSON.
    clientConnection: { kubeconfig, contentType: "application/json" },
    // A namespace cannot set limits of the machine.
    conntrack: { maxPerCore: 0, min: 0 },
    oomScoreAdj: 0,
    featureGates: nftablesGate(),
    ...settings,
  });
}

const pathFor = (mode: Mode): NodeJS.ProcessEnv => ({
  ...process.env,
  PATH: `${iptablesPath(backendOf(mode))}:${process.env["PATH"]}`,
});

/** A running kube-proxy. */
export class KubeProxy {
  readonly mode: Mode;
  readonly #host: Host;
  readonly #child: ChildProcess;
  readonly #directory: string;
  #log = "";

  private constructor(mode: Mode, host: Host, child: ChildProcess, directory: string) {
    this.mode = mode;
    this.#host = host;
    this.#child = child;
    this.#directory = directory;
    child.stderr?.on("data", (chunk: Buffer) => (this.#log += chunk.toString()));
  }

  /** Starts it without waiting. */
  static async launch(host: Host, options: KubeProxyOptions): Promise<KubeProxy> {
    const directory = await mkdtemp(join(tmpdir(), "nft-proxier-kube-proxy-"));
    const kubeconfig = join(directory, "kubeconfig");
    const config = join(directory, "config.json");
    await writeFile(kubeconfig, options.kubeconfig);
    await writeFile(config, JSON.stringify(configurationFor(options, kubeconfig)));
    // `preflight` names the owner of a port after the process's file.
    const program = join(directory, "kube-proxy");
    await symlink(resolve(kubeProxyProgram()), program);
    const child = host.spawn([program, "--config", config, "-v=2"], {
      stdio: ["ignore", "ignore", "pipe"],
      env: pathFor(options.mode),
    });
    return new KubeProxy(options.mode, host, child, directory);
  }

  /** Starts it and waits for the first sync of both families. */
  static async start(host: Host, options: KubeProxyOptions): Promise<KubeProxy> {
    const started = await KubeProxy.launch(host, options);
    await started.synced();
    return started;
  }

  /**
   * Resolves when it has rules for some service in both families, and has ended the UDP connections that it then considers stale. Rejects
   * with its log if it ends, or takes too long.
   */
  async synced(): Promise<void> {
    const limit = performance.now() + patience(60_000);
    for (;;) {
      const texts = await rulesOf(this.#host, this.mode);
      if (this.syncs >= FAMILIES.length && texts.every((text) => SERVES[this.mode].test(text))) return;
      if (this.ended) throw new Error(`kube-proxy ended with ${this.#child.exitCode}:\n${this.#log}`);
      if (performance.now() > limit) throw new Error(`kube-proxy has written no service:\n${this.#log}`);
      await sleep(20);
    }
  }

  /** Number of syncs of both families together, including failed ones. */
  get syncs(): number {
    return this.#log.split("SyncProxyRules complete").length - 1;
  }

  /** klog's lines. */
  get log(): string {
    return this.#log;
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Ends the process; its rules stay. */
  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (!this.ended) {
      const exited = once(this.#child, "exit");
      this.#child.kill(signal);
      await exited;
    }
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** Patterns of its rules for a service. */
const SERVES: Readonly<Record<Mode, RegExp>> = {
  nftables: /map service-ips \{[^}]*goto (service|local)-[A-Z2-7]{8}-/,
  "iptables-nft": /-A KUBE-SVC-/,
  "iptables-legacy": /-A KUBE-SVC-/,
};

/** All rules in the tables that this mode writes, listed by its own tools: a text for each family. */
export async function rulesOf(host: Host, mode: Mode): Promise<readonly string[]> {
  const env = pathFor(mode);
  return Promise.all(
    FAMILIES.map(async (family) => {
      if (mode === "nftables") return (await host.run(["nft", "list", "table", family, "kube-proxy"])).stdout;
      return host.mustRun([family === "ip" ? "iptables-save" : "ip6tables-save"], { env });
    }),
  );
}

/** Runs an iptables command of the mode's kind. */
export async function iptables(host: Host, mode: Mode, words: readonly string[]): Promise<string> {
  return host.mustRun(words, { env: pathFor(mode) });
}

/** Runs `kube-proxy --cleanup` with the tools of one kind. */
export async function kubeProxyCleanup(host: Host, mode: Mode): Promise<Finished> {
  const gates = Object.keys(nftablesGate()).map((gate) => `--feature-gates=${gate}=true`);
  return host.run([kubeProxyProgram(), "--cleanup", ...gates], { env: pathFor(mode) });
}
