/**
 * Keeps the flowtable and its interfaces, in a separate table with separate transactions. Whatever fails here, connections
 * continue through the rules.
 */
import { release } from "node:os";
import { BoundedFrequencyRunner, type WriteOutcome } from "../base/bounded-frequency-runner.js";
import type { Logger } from "../base/logger.js";
import { KernelError } from "../nft/kernel/errors.js";
import type { Kernel, Monitor, Op } from "../nft/kernel/kernel.js";
import type { NetworkInterfaces } from "../nft/kernel/network-interfaces.js";
import { isKernelAtLeast } from "../node/kernel-release.js";
import { isMeant } from "./interfaces.js";
import { addDevices, createTable, deleteTable, FLOWTABLE_REF, OFFLOAD_CHAIN } from "./operations.js";

type FlowtableKernel = Pick<Kernel, "commit" | "tables" | "rules">;

export interface FlowtableOptions {
  readonly kernel: FlowtableKernel;
  readonly links: Pick<NetworkInterfaces, "names" | "watchLinks">;
  readonly log: Logger;
  /** Names, or prefixes of names with a trailing `*`. */
  readonly interfaces: readonly string[];
  /** Called for each failure, for a metric. */
  readonly onFailure?: () => void;
  /** Output of `uname -r`; default: this kernel's. */
  readonly kernelRelease?: string;
  /** Interval of checks whether another process removed it, ms. */
  readonly checkIntervalMs?: number;
}

/**
 * Earlier kernels refuse (EBUSY) to let ctnetlink delete the entry of an offloaded connection: commit 9b7c68b3911a, "netfilter:
 * ctnetlink: Support offloaded conntrack entry deletion". Stable releases of 2023 have it too, but the release names of
 * distributions do not show that.
 */
const SINCE = [6, 4] as const;
/**
 * Later kernels also offload FIN and RST, and keep the entry ESTABLISHED until 30 s of silence (nf_flowtable_tcp_timeout) are
 * over. Limits would count closed connections. See commit fdbaf5163331, "netfilter: flowtable: add CLOSING state".
 */
const UNTIL = [6, 14] as const;
/** Links change in bursts: a pod's link appears, is renamed, and gets its addresses. */
const COALESCE_MS = 100;
const CHECK_INTERVAL_MS = 60_000;
const LONGEST_RETRY_MS = 60_000;
const WITHOUT = "connections use the rules";

/** The kernel's answers to a flowtable without devices if it was built without flowtables (nft_flowtable_type_get). */
const UNSUPPORTED: readonly (string | undefined)[] = ["ENOENT", "EOPNOTSUPP"];

export class Flowtable {
  readonly #runner: BoundedFrequencyRunner;
  /**
   * Interfaces in it, with their indices, because an interface re-created under its name is a different one. Undefined if the
   * table must be created.
   */
  #devices: Map<string, number> | undefined;
  /** Interfaces that the kernel rejects, and why. */
  readonly #refused = new Map<string, string>();
  #failure: string | undefined;
  #unsupported: string | undefined;
  #watch: Monitor | undefined;
  #check: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly options: FlowtableOptions) {
    const limits = { gapMs: 0, maxRetryMs: LONGEST_RETRY_MS };
    this.#runner = new BoundedFrequencyRunner(() => this.#update(), limits);
  }

  /** Starts. Failures are logged and retried. Never rejects. */
  async start(): Promise<void> {
    const { log, kernelRelease = release(), checkIntervalMs = CHECK_INTERVAL_MS } = this.options;
    const unfit = unfitness(kernelRelease);
    if (unfit !== undefined) {
      this.#giveUp(unfit);
      await removeFlowtable(this.options.kernel, log);
      return;
    }
    this.#runner.requestIn(0);
    this.#check = setInterval(() => void this.#checkTable(), checkIntervalMs);
    this.#check.unref();
  }

  /** Interfaces in the flowtable. */
  get devices(): readonly string[] {
    return [...(this.#devices?.keys() ?? [])];
  }

  /** Why there is no flowtable; final until the program ends. */
  get unsupported(): string | undefined {
    return this.#unsupported;
  }

  /** Current failures, which are retried. */
  failures(): readonly string[] {
    const refused = [...this.#refused].map(([name, reason]) => `interface ${name}: ${reason}`);
    return this.#failure === undefined ? refused : [this.#failure, ...refused];
  }

  /** The table stays, like the services' tables. Nothing is written afterwards. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#check);
    await this.#runner.stop();
    await this.#watch?.close();
    this.#watch = undefined;
  }

  async #update(): Promise<WriteOutcome> {
    if (this.#unsupported !== undefined) return { ok: true };
    try {
      // Subscribe before the read, so that no change is lost between the two.
      await this.#subscribe();
      await this.#reconcile();
    } catch (error) {
      this.#fail(error);
      return { ok: false };
    }
    if (this.#failure !== undefined) this.options.log.info("the flowtable is up to date again");
    this.#failure = undefined;
    return { ok: this.#unsupported !== undefined || this.#refused.size === 0 };
  }

  async #subscribe(): Promise<void> {
    if (this.#watch !== undefined) return;
    const changed = (): void => this.#runner.requestIn(COALESCE_MS);
    const onError = (error: Error): void => {
      this.#watch = undefined;
      this.#fail(error);
      changed();
    };
    this.#watch = await this.options.links.watchLinks({ onChange: changed, onLost: changed, onError });
  }

  async #reconcile(): Promise<void> {
    const { links, interfaces } = this.options;
    const names = await links.names();
    const meant = new Map(
      [...names].filter(([, name]) => isMeant(name, interfaces)).map(([index, name]) => [name, index]),
    );
    const devices = this.#devices ?? (await this.#create());
    if (devices === undefined) return;
    // The kernel has removed devices that are gone (nft_flowtable_event). A new one may have the same name.
    for (const [name, index] of devices) if (meant.get(name) !== index) devices.delete(name);
    for (const name of this.#refused.keys()) if (!meant.has(name)) this.#refused.delete(name);
    const added = [...meant].filter(([name]) => !devices.has(name));
    await this.#add(new Map(added), devices);
  }

  /** Returns undefined if this kernel has no flowtables. */
  async #create(): Promise<Map<string, number> | undefined> {
    const { kernel, log, interfaces } = this.options;
    try {
      await kernel.commit(createTable(interfaces));
    } catch (error) {
      if (!(error instanceof KernelError) || error.code !== "refused" || !UNSUPPORTED.includes(errnoOf(error)))
        throw error;
      this.#giveUp("this kernel was built without flowtables (CONFIG_NF_FLOW_TABLE_INET, CONFIG_NFT_FLOW_OFFLOAD)");
      await removeFlowtable(kernel, log);
      return undefined;
    }
    log.info({ table: FLOWTABLE_REF.table, interfaces }, "flowtable created");
    return (this.#devices = new Map());
  }

  /** Adds all in one transaction. If the kernel rejects it, adds each in its own. */
  async #add(added: ReadonlyMap<string, number>, devices: Map<string, number>): Promise<void> {
    if (added.size === 0) return;
    const names = [...added.keys()];
    const put = (name: string): void => {
      devices.set(name, added.get(name)!);
      this.#refused.delete(name);
    };
    if ((await this.#tried(addDevices(names))) === undefined) {
      names.forEach(put);
      this.options.log.info({ added: names, interfaces: devices.size }, "interfaces added to the flowtable");
      return;
    }
    for (const name of names) {
      const refusal = await this.#tried(addDevices([name]));
      if (refusal === undefined) put(name);
      else this.#refuse(name, refusal);
    }
  }

  /** Returns undefined on success, or the error if the kernel rejected it. Throws other errors, including an unknown outcome. */
  async #tried(ops: readonly Op[]): Promise<KernelError | undefined> {
    try {
      await this.options.kernel.commit(ops);
      return undefined;
    } catch (error) {
      if (error instanceof KernelError && error.code === "refused") return error;
      throw error;
    }
  }

  /** An interface that has gone meanwhile is rejected too; the next check no longer finds it. */
  #refuse(name: string, error: KernelError): void {
    if (!this.#refused.has(name)) {
      this.options.onFailure?.();
      this.options.log.warn(
        { interface: name, err: error },
        "the kernel refused an interface of the flowtable; retrying",
      );
    }
    this.#refused.set(name, error.message);
  }

  /** The kernel's state is unknown after a failure, so the table is created from scratch. */
  #fail(error: unknown): void {
    if (this.#closed) return;
    const { log, onFailure } = this.options;
    onFailure?.();
    const level = this.#failure === undefined ? "warn" : "debug";
    log[level]({ err: error }, "updating the flowtable failed; retrying");
    this.#failure = error instanceof Error ? error.message : String(error);
    if (!(error instanceof KernelError) || error.details.action === "commit") this.#devices = undefined;
  }

  #giveUp(reason: string): void {
    this.#unsupported = reason;
    clearInterval(this.#check);
    this.options.onFailure?.();
    this.options.log.warn({ reason }, `no flowtable; ${WITHOUT}`);
  }

  async #checkTable(): Promise<void> {
    const { kernel, log } = this.options;
    if (this.#devices === undefined || this.#closed) return;
    try {
      const rules = await kernel.rules(FLOWTABLE_REF, OFFLOAD_CHAIN);
      if (rules.some(({ exprs }) => exprs.some(({ type }) => type === "flow_offload"))) return;
      log.warn({ table: FLOWTABLE_REF.table }, "another process removed the flowtable; creating it again");
      this.#devices = undefined;
      this.#runner.requestIn(0);
    } catch (error) {
      if (!this.#closed) log.debug({ err: error }, "checking the flowtable failed");
    }
  }
}

/** Why connections would be treated differently than in the rules. */
function unfitness(kernelRelease: string): string | undefined {
  if (!isKernelAtLeast(kernelRelease, SINCE))
    return `connections in a flowtable cannot be reset before Linux ${SINCE.join(".")}, and this is Linux ${kernelRelease}`;
  if (isKernelAtLeast(kernelRelease, UNTIL))
    return `from Linux ${UNTIL.join(".")} on, the end of connections in a flowtable is not tracked, and this is Linux ${kernelRelease}`;
  return undefined;
}

const errnoOf = ({ details }: KernelError): string | undefined => details.faults?.[0]?.errno ?? details.errno;

/** Removes the table if it exists. Logs a failure, and then returns false. Never rejects. */
export async function removeFlowtable(
  kernel: Pick<FlowtableKernel, "tables" | "commit">,
  log: Logger,
): Promise<boolean> {
  try {
    if (!(await kernel.tables("inet")).some(({ table }) => table === FLOWTABLE_REF.table)) return true;
    await kernel.commit(deleteTable());
    log.info({ table: FLOWTABLE_REF.table }, "flowtable removed");
    return true;
  } catch (error) {
    log.error({ table: FLOWTABLE_REF.table, err: error }, "removing the flowtable failed");
    return false;
  }
}
