import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Monitor } from "../../../src/nft/kernel/kernel.js";
import type { ConnectedKernel } from "../../support/kernel-world.ts";
import { formatAddress } from "../../../src/base/ip.js";
import type { Current } from "../cases.js";

/** Watches, and counts reports. */
class Watcher {
  changes = 0;
  readonly faults: unknown[] = [];
  monitor: Monitor | undefined;

  static async open({ interfaces }: ConnectedKernel): Promise<Watcher> {
    const watcher = new Watcher();
    watcher.monitor = await interfaces.watchAddresses({
      onChange: () => void watcher.changes++,
      onLost: () => void watcher.faults.push("lost"),
      onError: (error) => void watcher.faults.push(error),
    });
    return watcher;
  }

  /** Waits until more than this many changes have been reported. */
  async more(than: number): Promise<void> {
    await expect.poll(() => this.changes, { interval: 10, message: "changes reported" }).toBeGreaterThan(than);
  }
}

const FOUR = "192.0.2.7/24";
const SIX = "2001:db8::7/64";

async function texts({ interfaces }: ConnectedKernel): Promise<string[]> {
  const addresses = await interfaces.addresses();
  return addresses.map(
    ({ address, prefixLength, interfaceName }) => `${formatAddress(address)}/${prefixLength} ${interfaceName}`,
  );
}

export function addresses(current: Current): void {
  test("addresses of both families are read, also those of a link that is down", async () => {
    const { kernel, changeAddress } = current();
    expect(await texts(kernel)).toEqual([]);
    await changeAddress("add", FOUR);
    await changeAddress("add", SIX);
    expect(await texts(kernel)).toEqual([`${FOUR} lo`, `${SIX} lo`]);
    const [four, six] = await kernel.interfaces.addresses();
    expect([four.family, four.interfaceIndex, six.family, six.interfaceIndex]).toEqual(["ip", 1, "ip6", 1]);
  });

  test("a watcher is notified of an added and a removed address, and then reads the new state", async () => {
    const { kernel, changeAddress } = current();
    const watcher = await Watcher.open(kernel);
    for (const cidr of [FOUR, SIX]) {
      let before = watcher.changes;
      await changeAddress("add", cidr);
      await watcher.more(before);
      expect(await texts(kernel)).toEqual([`${cidr} lo`]);
      before = watcher.changes;
      await changeAddress("delete", cidr);
      await watcher.more(before);
      expect(await texts(kernel)).toEqual([]);
    }
    await watcher.monitor?.close();
    expect(watcher.faults).toEqual([]);
  });

  test("every watcher is notified, on any connection", async () => {
    const { kernel, other, changeAddress } = current();
    const watchers = [await Watcher.open(kernel), await Watcher.open(kernel), await Watcher.open(await other())];
    await changeAddress("add", FOUR);
    await Promise.all(watchers.map((watcher) => watcher.more(0)));
    for (const { monitor } of watchers) await monitor?.close();
  });

  test("no change is reported after close, or after the connection was closed", async () => {
    const { kernel, other, changeAddress } = current();
    const them = await other();
    const watchers = [await Watcher.open(kernel), await Watcher.open(them)];
    await watchers[0].monitor?.close();
    await watchers[0].monitor?.close();
    await them.close();
    await changeAddress("add", FOUR);
    await sleep(50);
    expect(watchers.map(({ changes }) => changes)).toEqual([0, 0]);
    await expect(them.interfaces.watchAddresses({ onChange() {}, onLost() {}, onError() {} })).rejects.toMatchObject({
      code: "closed",
    });
  });
}
