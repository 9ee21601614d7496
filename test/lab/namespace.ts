/** One named network namespace: runs programs in it, and has an agent. */
import { execFile, spawn, type ChildProcess, type SpawnOptions } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";

import { Agent } from "./agent.ts";
import { HttpClient } from "./http.ts";
import { patience } from "./patience.ts";

export interface Finished {
  /** A program killed by a signal has code -1, not 128 + the signal's number. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Written to the program's stdin. */
  readonly input?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly timeoutMs?: number;
}

/** Runs to the end, whatever the exit code. Rejects if the program cannot be started. */
export function run(program: string, args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      program,
      [...args],
      { env: options.env ?? process.env, timeout: patience(options.timeoutMs ?? 150_000), maxBuffer: 64 << 20 },
      (error, stdout, stderr) => {
        if (error && typeof error.code === "string") return reject(error);
        const code = error ? (typeof error.code === "number" ? error.code : -1) : 0;
        resolve({ code, stdout, stderr });
      },
    );
    child.stdin?.on("error", () => undefined); // a program that ends without reading its input is not a failure
    child.stdin?.end(options.input ?? "");
  });
}

/** Like `run`, but rejects unless the program exits with 0. */
export async function mustRun(program: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  const done = await run(program, args, options);
  if (done.code !== 0) throw new Error(`${program} ${args.join(" ")}: exit ${done.code}: ${done.stderr.trim()}`);
  return done.stdout;
}

/**
 * Runs `ip` without the libraries that are preloaded into the programs under test. A sanitizer would find faults in `ip` itself and end it:
 * Debian 12's copies a string onto itself when it shows routes.
 */
function mustRunIp(args: readonly string[], options: RunOptions = {}): Promise<string> {
  return mustRun("ip", args, { ...options, env: { ...process.env, LD_PRELOAD: undefined } });
}

/** The fields that we read from `ip -6 -json` output for a link, with its addresses, or for a route. */
interface Shown {
  readonly ifname?: string;
  readonly flags?: readonly string[];
  readonly master?: string;
  readonly addr_info?: readonly { readonly local: string; readonly scope: string; readonly tentative?: boolean }[];
  readonly dst?: string;
}

export class Namespace {
  /** Its name in `ip netns`. */
  readonly name: string;
  #agent: Agent | undefined;
  #http: HttpClient | undefined;
  readonly #children = new Set<ChildProcess>();

  private constructor(name: string) {
    this.name = name;
  }

  static async create(name: string): Promise<Namespace> {
    const [made] = await Namespace.createAll([name]);
    return made;
  }

  /** Creates several namespaces in one process. */
  static async createAll(names: readonly string[]): Promise<readonly Namespace[]> {
    await mustRunIp(["-batch", "-"], { input: names.map((name) => `netns add ${name}\n`).join("") });
    return names.map((name) => new Namespace(name));
  }

  /** The command that runs its arguments in this namespace. */
  get prefix(): readonly string[] {
    return ["ip", "netns", "exec", this.name];
  }

  run(command: readonly string[], options?: RunOptions): Promise<Finished> {
    return run("ip", ["netns", "exec", this.name, ...command], options);
  }

  mustRun(command: readonly string[], options?: RunOptions): Promise<string> {
    return mustRun("ip", ["netns", "exec", this.name, ...command], options);
  }

  /** Runs lines for `ip -batch` in one process. */
  async ipOnly(lines: readonly string[]): Promise<void> {
    if (lines.length > 0) await mustRunIp(["-n", this.name, "-batch", "-"], { input: lines.join("\n") + "\n" });
  }

  /** Like `ipOnly`, but resolves when the addresses in these lines are reachable. */
  async ip(lines: readonly string[]): Promise<void> {
    await this.ipOnly(lines);
    if (lines.some((line) => line.startsWith("address add ") && line.includes(":"))) await this.addressesReached();
  }

  /**
   * Resolves when every IPv6 address here has its local route, and every link that is up has its link-local address.
   *
   * The kernel leaves both to a work queue (addrconf_dad_work, linkwatch_event), even with `nodad`: on a busy machine they come after `ip`
   * has ended. Until then, packets for such an address leave by the default route, and no neighbour is resolved on the link.
   */
  async addressesReached(): Promise<void> {
    const limit = performance.now() + patience(30_000);
    for (;;) {
      const missing = await this.#unreached();
      if (missing.length === 0) return;
      if (performance.now() > limit) throw new Error(`${this.name}: not reached: ${missing.join(", ")}`);
      await sleep(5);
    }
  }

  async #unreached(): Promise<readonly string[]> {
    const input = "link show up\naddress show up\nroute show table local\n";
    const shown = await mustRunIp(["-n", this.name, "-6", "-json", "-batch", "-"], { input });
    const [links, addressed, routes] = shown.split("\n", 3).map((line) => JSON.parse(line) as readonly Shown[]);
    const local = new Set(routes.map(({ dst }) => dst));
    return links.flatMap(({ ifname, flags = [], master }) => {
      const { addr_info: addresses = [] } = addressed.find((link) => link.ifname === ifname) ?? {};
      const waiting = addresses.filter((one) => one.tentative === true || !local.has(one.local));
      const asks = flags.includes("LOWER_UP") && !flags.includes("LOOPBACK") && master === undefined;
      const lacks = asks && !addresses.some(({ scope }) => scope === "link");
      return [...waiting.map((one) => `${one.local} on ${ifname}`), ...(lacks ? [`a link-local on ${ifname}`] : [])];
    });
  }

  /**
   * Sets sysctls under their sysctl(8) names; conf/default covers links that are created later. Missing settings are ignored. Settings of
   * connection tracking do not exist until the kernel has loaded it, which happens when a rule is checked. They are also missing if root is
   * root only in a user namespace.
   */
  async sysctl(settings: Readonly<Record<string, string | number>>): Promise<void> {
    const lines = Object.entries(settings).flatMap(([key, value]) => {
      const path = `/proc/sys/${key.replaceAll(".", "/")}`;
      const load = `[ -e ${path} ] || echo 'table ip probe { chain c { ct state new; }; }' | nft -c -f -`;
      const set = `if [ -e ${path} ]; then echo ${value} > ${path}; fi`;
      return key.startsWith("net.netfilter.nf_conntrack_") ? [load, set] : [set];
    });
    await this.mustRun(["sh", "-e"], { input: lines.join("\n") + "\n" });
  }

  /** Starts a program that keeps running; `destroy` ends it. */
  spawn(command: readonly string[], options: SpawnOptions = {}): ChildProcess {
    const child = spawn("ip", ["netns", "exec", this.name, ...command], options);
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    return child;
  }

  /** Starts the agent at the first call. */
  agent(): Agent {
    this.#agent ??= Agent.start(this.prefix);
    return this.#agent;
  }

  /** Starts the client at the first call. */
  http(): HttpClient {
    this.#http ??= new HttpClient(this);
    return this.#http;
  }

  async destroy(): Promise<void> {
    const ended = [...this.#children].map((child) => {
      const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
      child.kill("SIGKILL");
      return gone;
    });
    await Promise.all([...ended, this.#agent?.stop()]);
    await mustRunIp(["netns", "delete", this.name]);
  }
}
