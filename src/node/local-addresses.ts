/**
 * Addresses of this node's interfaces, kept up to date by kernel events. Like net.InterfaceAddrs, which kube-proxy uses,
 * they include addresses of links that are down, and tentative and deprecated IPv6 addresses.
 */
import type { Monitor } from "../nft/kernel/kernel.js";
import type { InterfaceAddress, NetworkInterfaces } from "../nft/kernel/network-interfaces.js";
import { Backoff } from "../base/backoff.js";
import { BoundedFrequencyRunner, type WriteOutcome } from "../base/bounded-frequency-runner.js";
import { formatAddress } from "../base/ip.js";
import type { Logger } from "../base/logger.js";
import type { LocalAddress } from "./node-facts.js";

export type WatchedAddresses = Pick<NetworkInterfaces, "addresses" | "watchAddresses">;

/** First and longest wait before a retry of a failed read or subscription, ms. */
const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 5000;

export class LocalAddresses {
  #known: readonly LocalAddress[] | undefined;
  #watch: Monitor | undefined;
  #reading: Promise<void> | undefined;
  readonly #runner = new BoundedFrequencyRunner(() => this.#readAgain(), { gapMs: 0, maxRetryMs: MAX_RETRY_MS });
  readonly #backoff = new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: MAX_RETRY_MS });
  #closed = false;

  /** `onChange` is called when the result of `current()` changes, not for a mere change of state. */
  constructor(
    private readonly interfaces: WatchedAddresses,
    private readonly log: Logger,
    private readonly onChange: () => void,
  ) {}

  /**
   * Sorted, without duplicates. The first call subscribes and reads; later calls answer at once. Rejects with the kernel's
   * error if nothing has been read yet and reading fails: call it again.
   */
  async current(): Promise<readonly LocalAddress[]> {
    if (this.#known === undefined) await this.#read();
    return this.#known ?? [];
  }

  /** `onChange` is not called afterwards. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#runner.stop();
    await this.#reading?.catch(() => undefined);
    await this.#watch?.close();
    this.#watch = undefined;
  }

  async #readAgain(): Promise<WriteOutcome> {
    // An event that arrives during a read may be about something that the read did not see.
    await this.#reading?.catch(() => undefined);
    await this.#read().catch((error: unknown) => this.#retryLater(error));
    return { ok: true };
  }

  #read(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    // Subscribe before the read, so that no change is lost between the two.
    if (this.#watch === undefined) await this.#subscribe();
    this.#update(await this.interfaces.addresses());
    if (this.#watch !== undefined) this.#backoff.reset();
  }

  async #subscribe(): Promise<void> {
    const changed = (): void => this.#runner.requestIn(0);
    const onError = (error: Error): void => {
      this.#watch = undefined;
      this.#retryLater(error);
    };
    try {
      this.#watch = await this.interfaces.watchAddresses({ onChange: changed, onLost: changed, onError });
    } catch (error) {
      // Use what can be read until the next attempt.
      this.#retryLater(error);
    }
  }

  #update(addresses: readonly InterfaceAddress[]): void {
    const texts = new Map(addresses.map(({ family, address }) => [formatAddress(address), family]));
    const read = [...texts].map(([address, family]) => ({ family, address }));
    read.sort((a, b) => (a.address < b.address ? -1 : 1));
    const same = this.#known?.map(({ address }) => address).join() === read.map(({ address }) => address).join();
    const first = this.#known === undefined;
    this.#known = read;
    if (!first && !same && !this.#closed) this.onChange();
  }

  #retryLater(error: unknown): void {
    if (this.#closed) return;
    const waitMs = this.#backoff.next();
    // Many changes at once interrupt a dump: no warning for the first retries.
    const level = this.#backoff.failures > 3 || this.#watch === undefined ? "warn" : "debug";
    this.log[level]({ err: error, retryMs: waitMs }, "reading interface addresses failed; retrying");
    this.#runner.requestIn(waitMs);
  }
}
