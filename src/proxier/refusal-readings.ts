/** Reads the kernel's counts of refused connections on request. All who ask share a reading. */
import { LITTLE_ENDIAN } from "../base/byte-order.js";
import { TimeSlice } from "../base/time-slice.js";
import { batchLayout } from "../nft/kernel/element-batch.js";
import type { Kernel, SetInfo } from "../nft/kernel/kernel.js";
import type { IpFamily } from "../base/ip.js";
import { type AddressKey, keyOf, NODE_PORT } from "../model/service-address.js";
import type { ServiceModel } from "../model/service-model.js";
import { ICMP_ERRORS, REFUSALS, type RefusalKey, unpackIcmpError, unpackRefusal } from "../ruleset/refusals.js";
import { TABLE_NAME } from "../ruleset/names.js";
import type { ProxierObserver } from "./observer.js";

/** A reading serves all who ask within this time, ms. */
const FRESH_MS = 1000;
/** If the set is full, a reading deletes counts whose last packet is older than this, ms, so that others are counted. */
const OLD_MS = 60_000;

export interface Refusal extends RefusalKey {
  /** Number of packets since the address was first refused, with pauses shorter than KEPT_MS. */
  readonly count: number;
  /** Time since the last packet, ms. */
  readonly agoMs: number;
}

/** The counts of one reading. */
export interface Refusals {
  /** By the address of a service. Those at any address of this node are at its node port. */
  readonly addresses: ReadonlyMap<AddressKey, readonly Refusal[]>;
  /** By endpoint. */
  readonly endpoints: ReadonlyMap<AddressKey, Refusal>;
  /** Further addresses are not counted. */
  readonly isFull: boolean;
}

const NONE: Refusals = { addresses: new Map(), endpoints: new Map(), isFull: false };

interface RefusalReadingsOptions {
  readonly kernel: Pick<Kernel, "sets" | "elements" | "commit">;
  readonly families: readonly IpFamily[];
  readonly model: Pick<ServiceModel, "ownerOf">;
}

export class RefusalReadings implements ProxierObserver {
  readonly #latest = new Map<IpFamily, Refusals>();
  #reading: Promise<void> | undefined;
  #nextAt = Number.NEGATIVE_INFINITY;
  /** Addresses that services have lost since the last reading. */
  #lost = new Set<AddressKey>();

  constructor(private readonly options: RefusalReadingsOptions) {}

  /** As of the last reading. */
  of(family: IpFamily): Refusals {
    return this.#latest.get(family) ?? NONE;
  }

  /** Resolves when the data of `of` is at most a second old. Rejects with KernelError; `of` then returns older data. */
  async read(): Promise<void> {
    if (performance.now() < this.#nextAt) return;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    await this.#reading;
  }

  /** Soon deletes the counts of the address, because they are the former service's. */
  lost(address: AddressKey): void {
    if (this.#lost.size === 0) setTimeout(() => void this.read().catch(() => undefined), FRESH_MS).unref();
    this.#lost.add(address);
  }

  async #read(): Promise<void> {
    const began = performance.now();
    const lost = new Set(this.#lost);
    for (const family of this.options.families) this.#latest.set(family, await this.#readFamily(family, lost));
    this.#nextAt = began + FRESH_MS;
    // Not after an error: for example, an element expired before it was deleted.
    for (const address of lost) this.#lost.delete(address);
  }

  /** Resolves to no refusals if the table has no counts. */
  async #readFamily(family: IpFamily, lost: ReadonlySet<AddressKey>): Promise<Refusals> {
    const refusals = { addresses: new Map<AddressKey, Refusal[]>(), endpoints: new Map<AddressKey, Refusal>() };
    let isFull = false;
    for (const set of await this.options.kernel.sets({ family, table: TABLE_NAME })) {
      if (set.set !== REFUSALS && set.set !== ICMP_ERRORS) continue;
      isFull = (await this.#readSet(family, set, lost, refusals)) || isFull;
    }
    return { ...refusals, isFull };
  }

  /** Adds the set's counts. Resolves to whether it is full. */
  async #readSet(
    family: IpFamily,
    set: SetInfo,
    lost: ReadonlySet<AddressKey>,
    { addresses, endpoints }: { addresses: Map<AddressKey, Refusal[]>; endpoints: Map<AddressKey, Refusal> },
  ): Promise<boolean> {
    const { kernel, model } = this.options;
    const ref = { family, table: TABLE_NAME };
    const batch = await kernel.elements(ref, set);
    const { keyLen } = batch;
    const { stride, timeout, expiration, counter } = batchLayout(batch);
    if (counter < 0 || timeout < 0 || expiration < 0) return false;
    const isFull = batch.count >= (set.size ?? Infinity);
    const view = new DataView(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
    const deleted: Uint8Array[] = [];
    const slice = new TimeSlice();
    for (let at = 0; at < batch.count * stride; at += stride) {
      const key = batch.bytes.subarray(at, at + keyLen);
      const address = set.set === REFUSALS ? unpackRefusal(key, family) : unpackIcmpError(key, family);
      const number = (offset: number): number => Number(view.getBigUint64(at + offset, LITTLE_ENDIAN));
      const count = number(counter);
      // Errors of other senders, such as firewalls.
      if (address === undefined && isFull) deleted.push(key);
      // Linux 5.10 does not count in elements that packets add.
      if (address === undefined || count === 0) continue;
      const refusal = { ...address, count, agoMs: Math.max(0, number(timeout) - number(expiration)) };
      const isVIP = model.ownerOf(refusal) !== undefined;
      const of = keyOf(isVIP ? refusal : { ...refusal, address: NODE_PORT });
      const isLost = lost.has(of) || lost.has(keyOf(refusal));
      if (refusal.reason === "endpoint") endpoints.set(keyOf(refusal), refusal);
      else if (isLost || (isFull && refusal.agoMs > OLD_MS)) deleted.push(key);
      else if (!addresses.get(of)?.push(refusal)) addresses.set(of, [refusal]);
      if (slice.spent) await slice.yield();
    }
    if (deleted.length > 0) {
      const elements = { count: deleted.length, keyLen, dataLen: 0, bytes: Buffer.concat(deleted) };
      await kernel.commit([{ op: "delete", kind: "elements", ...ref, set: set.set, elements }]);
    }
    return isFull;
  }
}
