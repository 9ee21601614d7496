import { expect, test } from "vitest";
import { PageFeed } from "../../../../src/daemon/page/page-feed.js";
import type { PageMessage, PageServices, PageUpdate } from "../../../../src/daemon/page/page-update.js";
import { portKey } from "../../../../src/daemon/page/page-update.js";
import { WriteHistory } from "../../../../src/daemon/page/write-history.js";
import { PiecewiseList } from "../../../../src/daemon/control/json-parts.js";
import type { ServicePortStatus, StatusReport } from "../../../../src/observe/status-report.js";
import { liveBytes } from "../../../support/live-bytes.ts";
import { WRITTEN } from "../../proxier/support/sync-report.ts";

function portOf(service: string, more: Partial<ServicePortStatus> = {}): ServicePortStatus {
  const [namespace, name] = service.split("/");
  return { namespace, name, portName: "", family: "ip", protocol: "TCP", port: 80, ...more } as ServicePortStatus;
}

/** A daemon with services that tests change. */
class World {
  readonly services = new Map([["demo/web", portOf("demo/web")]]);
  readonly reasons = new Map<string, string>();
  inForce = true;
  visit: ((service: string) => void) | undefined;
  statusFails = false;
  readings = 0;
  readonly feed: PageFeed;

  constructor({ updateMs = 5 } = {}) {
    this.feed = new PageFeed({
      updateMs,
      history: new WriteHistory(),
      status: () =>
        this.statusFails
          ? Promise.reject(new Error("no status"))
          : Promise.resolve({ families: [{ inForce: this.inForce }] } as unknown as StatusReport),
      answers: ([what]) =>
        what === "events"
          ? Promise.resolve({ items: [] })
          : Promise.resolve(new PiecewiseList({}, pieces([...this.services.values()]))),
      services: {
        isCounting: true,
        portsOf: (names) =>
          Promise.resolve(
            new Map(
              Array.from(names, (name) => [name, [this.services.get(name)].filter((port) => port !== undefined)]),
            ),
          ),
        withEndpoint: () => Promise.resolve([]),
        reasons: () => Promise.resolve(new Map(this.reasons)),
        readCounts: () => {
          this.readings++;
          return Promise.resolve(1_000);
        },
        onCounts: (visit) => (this.visit = visit),
      },
    });
  }

  async *messages(after?: string, signal = new AbortController().signal): AsyncGenerator<PageMessage> {
    for await (const text of this.feed.follow(after, signal)) {
      yield JSON.parse(text.slice("data: ".length)) as PageMessage;
    }
  }
}

async function* pieces(ports: ServicePortStatus[]): AsyncGenerator<ServicePortStatus[]> {
  yield await Promise.resolve(ports);
}

const isUpdate = (message: PageMessage): message is PageUpdate => "id" in message;

/** Reads until a message is as wanted, and returns all messages until then. */
async function until(
  messages: AsyncGenerator<PageMessage>,
  isWanted: (message: PageMessage) => boolean,
): Promise<PageMessage[]> {
  const read: PageMessage[] = [];
  for (;;) {
    const { value } = (await messages.next()) as { value: PageMessage };
    read.push(value);
    if (isWanted(value)) return read;
  }
}

const isComplete = (message: PageMessage): boolean => (message as PageServices).last === true;
const changes =
  (service: string) =>
  (message: PageMessage): boolean =>
    isUpdate(message) && message.changed.some((change) => change.service === service);

test("a viewer gets the status, then all services, then only changes", async () => {
  const world = new World();
  const messages = world.messages();
  const first = await until(messages, isComplete);
  expect(first.map((message) => (isUpdate(message) ? "update" : message.items.length))).toEqual(["update", 0, 1, 0]);
  world.services.set("demo/new", portOf("demo/new"));
  world.feed.synced({ ...WRITTEN, services: ["demo/new"] });
  const [change] = (await until(messages, changes("demo/new"))).filter(isUpdate).at(-1)?.changed ?? [];
  expect(change).toEqual({ service: "demo/new", ports: [portOf("demo/new")] });
  world.services.delete("demo/new");
  world.feed.synced({ ...WRITTEN, services: ["demo/new"] });
  expect((await until(messages, changes("demo/new"))).filter(isUpdate).at(-1)?.changed[0]?.ports).toEqual([]);
  await messages.return(undefined);
});

test("a viewer that returns soon gets only what it missed, and one of another run gets all services", async () => {
  const world = new World();
  const messages = world.messages();
  const read = await until(messages, isComplete);
  const { id } = read.find(isUpdate)!;
  await messages.return(undefined);
  world.feed.synced({ ...WRITTEN, services: ["demo/web"] });
  const back = world.messages(id);
  expect((await until(back, changes("demo/web"))).filter((message) => !isUpdate(message))).toEqual([]);
  await back.return(undefined);
  for (const after of ["", "x", "0-1", `${id}9`, "-"]) {
    const other = world.messages(after);
    expect((await until(other, isComplete)).length, after).toBeGreaterThan(2);
    await other.return(undefined);
  }
});

test("after more changes than an update may have, every viewer gets all services again", async () => {
  const world = new World();
  const messages = world.messages();
  await until(messages, isComplete);
  world.feed.synced({ ...WRITTEN, services: Array.from({ length: 5_000 }, (_, i) => `demo/s${i}`) });
  await until(messages, isComplete);
  // Also if a family becomes active: all states change.
  world.inForce = false;
  await until(messages, isComplete);
  await messages.return(undefined);
});

test("a service whose claim was lost to another one is sent again, although it did not change", async () => {
  const world = new World();
  const messages = world.messages();
  await until(messages, isComplete);
  world.reasons.set("demo/web", "another service has its address");
  await until(messages, changes("demo/web"));
  world.reasons.delete("demo/web");
  await until(messages, changes("demo/web"));
  await messages.return(undefined);
});

test("counts are sent for busy services alone, with refusals per second", async () => {
  const world = new World();
  const messages = world.messages();
  await until(messages, isComplete);
  const port = portOf("demo/web", { connections: 7, connectionsPerSecond: 3, refusals: { endpoint: 5 } });
  world.services.set("demo/web", port);
  const counted = (message: PageMessage): boolean => isUpdate(message) && (message.counts?.length ?? 0) > 0;
  world.visit?.("demo/web");
  const [update] = (await until(messages, counted)).filter(isUpdate).slice(-1);
  expect(update.counts).toMatchObject([{ key: portKey(port), connections: 7, connectionsPerSecond: 3, refused: 5 }]);
  expect(update.traffic?.at(-1)).toMatchObject({ connections: 3, refused: 5, dropped: 0 });
  world.visit?.("demo/web");
  const [next] = (await until(messages, counted)).filter(isUpdate).slice(-1);
  expect(next.counts?.[0]).toMatchObject({ refused: 0 });
  await messages.return(undefined);
});

test("refusals from before the first viewer came, or while a service was idle, are no rate", async () => {
  const world = new World();
  const refusing = (endpoint: number): ServicePortStatus => portOf("demo/web", { refusals: { endpoint } });
  const counted = (message: PageMessage): boolean => isUpdate(message) && (message.counts?.length ?? 0) > 0;
  for (const opening of ["first", "second"]) {
    world.services.set("demo/web", refusing(40));
    const began = Date.now();
    const messages = world.messages();
    world.visit?.("demo/web");
    const first = (message: PageMessage): boolean => isUpdate(message) && (message.traffic?.at(-1)?.at ?? 0) >= began;
    const [sample] = (await until(messages, first)).filter(isUpdate).slice(-1);
    expect(sample.traffic?.at(-1), opening).toMatchObject({ refused: 0, dropped: 0 });
    // Other readings follow in between, without this service.
    const { readings } = world;
    await until(messages, () => world.readings > readings + 2);
    world.services.set("demo/web", refusing(41));
    world.visit?.("demo/web");
    const [later] = (await until(messages, counted)).filter(isUpdate).slice(-1);
    expect(later.counts, opening).toMatchObject([{ refused: 1 }]);
    // The kernel has forgotten the count, and started again.
    world.services.set("demo/web", refusing(2));
    world.visit?.("demo/web");
    const [restarted] = (await until(messages, counted)).filter(isUpdate).slice(-1);
    expect(restarted.counts, opening).toMatchObject([{ refused: 2 }]);
    await messages.return(undefined);
    await expect.poll(() => world.visit).toBeUndefined();
  }
});

test("a page that stays open needs no more memory with each update", async () => {
  const world = new World({ updateMs: 0 });
  const messages = world.messages();
  const follow = async (updates: number): Promise<void> => {
    for (let seen = 0; seen < updates;) if (isUpdate(((await messages.next()) as { value: PageMessage }).value)) seen++;
  };
  await follow(1_000);
  const before = liveBytes();
  await follow(2_000);
  expect((liveBytes() - before) / 2_000).toBeLessThan(100);
  await messages.return(undefined);
});

test("without viewers nothing is read, and a failure ends the streams", async () => {
  const world = new World();
  const gone = new AbortController();
  const messages = world.messages(undefined, gone.signal);
  await until(messages, isComplete);
  gone.abort();
  expect((await messages.next()).done).toBe(true);
  await expect.poll(() => world.visit).toBeUndefined();
  const { readings } = world;
  await new Promise((resolve) => setTimeout(resolve, 30));
  expect(world.readings).toBe(readings);
  world.statusFails = true;
  await expect(world.messages().next()).rejects.toThrow("no status");
});
