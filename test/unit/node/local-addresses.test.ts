/** When the program is notified of interface addresses: only if they differ, also after every kind of failure. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeInterfaces, interfaceAddress as on } from "../../fakes/fake-interfaces.ts";
import { LocalAddresses } from "../../../src/node/local-addresses.js";
import { keptIn } from "../../support/log.ts";

let interfaces: FakeInterfaces;
let logged: Record<string, unknown>[];
let changes: number;
let subject: LocalAddresses;

beforeEach(() => {
  vi.useFakeTimers();
  interfaces = new FakeInterfaces([on("192.0.2.2"), on("192.0.2.1"), on("192.0.2.1", "eth1")]);
  logged = [];
  changes = 0;
  subject = new LocalAddresses(interfaces, keptIn(logged, "info"), () => void changes++);
});
afterEach(async () => {
  await subject.close();
  vi.useRealTimers();
});

const texts = async (): Promise<string[]> => (await subject.current()).map(({ address }) => address);
const pass = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

describe("LocalAddresses", () => {
  it("are read once, each once and sorted, and then kept in memory", async () => {
    const read = vi.spyOn(interfaces, "addresses");
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await pass(60_000);
    expect(read).toHaveBeenCalledTimes(1);
    expect(changes).toBe(0);
  });

  it("report added and removed addresses of either family", async () => {
    await texts();
    interfaces.set([on("192.0.2.1"), on("2001:db8::1")]);
    await pass();
    expect(changes).toBe(1);
    expect(await texts()).toEqual(["192.0.2.1", "2001:db8::1"]);
    interfaces.set([]);
    await pass();
    expect(changes).toBe(2);
    expect(await texts()).toEqual([]);
  });

  it("do not report a change of state, another interface, or a change that was already undone", async () => {
    await texts();
    interfaces.set([on("192.0.2.1", "eth7"), on("192.0.2.2")]);
    await pass();
    interfaces.set([]);
    interfaces.set([on("192.0.2.2"), on("192.0.2.1")]);
    await pass();
    expect(changes).toBe(0);
  });

  it("are read again when a change arrives during a read", async () => {
    await texts();
    let during = (): void => interfaces.set([on("192.0.2.9")]);
    const read = interfaces.addresses.bind(interfaces);
    vi.spyOn(interfaces, "addresses").mockImplementation(async () => {
      const answer = await read();
      during();
      during = () => undefined;
      return answer;
    });
    interfaces.set([on("192.0.2.8")]);
    await pass(1);
    expect(await texts()).toEqual(["192.0.2.9"]);
  });

  it("are read again when the kernel dropped events", async () => {
    await texts();
    vi.spyOn(interfaces, "addresses").mockResolvedValue([on("192.0.2.5")]);
    interfaces.loseEvents();
    await pass();
    expect(await texts()).toEqual(["192.0.2.5"]);
    expect(changes).toBe(1);
  });

  it("are soon read again after an interrupted read, and stay known until then", async () => {
    await texts();
    interfaces.interruptReads(2);
    interfaces.set([on("192.0.2.5")]);
    await pass();
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await pass(50);
    await pass(100);
    expect(await texts()).toEqual(["192.0.2.5"]);
    expect(changes).toBe(1);
    expect(logged).toEqual([]);
  });

  it("subscribe and are read again, with a message, when the stream ends", async () => {
    await texts();
    interfaces.breakMonitors(new Error("the socket died"));
    interfaces.set([on("192.0.2.5")]);
    await pass();
    expect(changes).toBe(0);
    await pass(50);
    expect(await texts()).toEqual(["192.0.2.5"]);
    expect(logged).toHaveLength(1);
    expect(JSON.stringify(logged[0])).toContain("the socket died");
    interfaces.set([on("192.0.2.6")]);
    await pass();
    expect(await texts()).toEqual(["192.0.2.6"]);
  });

  it("work without events while a subscription fails, and retry with backoff", async () => {
    const attempts: number[] = [];
    const start = Date.now();
    const watch = interfaces.watchAddresses.bind(interfaces);
    vi.spyOn(interfaces, "watchAddresses").mockImplementation((handlers) => {
      attempts.push(Date.now() - start);
      return attempts.length < 4 ? Promise.reject(new Error("no socket")) : watch(handlers);
    });
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await pass(10_000);
    expect(attempts).toEqual([0, 50, 150, 350]);
    interfaces.set([]);
    await pass();
    expect(changes).toBe(1);
  });

  it("fail the first query if there is no answer, and answer the next", async () => {
    interfaces.interruptReads();
    await expect(subject.current()).rejects.toMatchObject({ code: "interrupted" });
    expect(await texts()).toEqual(["192.0.2.1", "192.0.2.2"]);
  });

  it("report nothing once closed", async () => {
    await texts();
    interfaces.set([]);
    await subject.close();
    interfaces.set([on("192.0.2.5")]);
    await pass(10_000);
    expect(changes).toBe(0);
  });
});
