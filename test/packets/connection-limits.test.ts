/**
 * Annotations that limit connections: over all ways in together, exactly as many connections as allowed get through, and other services are
 * not affected.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import type { Transport } from "../lab/agent.ts";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { type AddressPair, FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { answers, type Connections } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import { Conversation } from "./support/conversation.ts";
import {
  clusterIP,
  everyWay,
  loadBalancer,
  type Manifest,
  serviceObjects,
  type ServiceSpec,
  type Target,
} from "./support/objects.ts";
import { someOf } from "../lab/length.ts";
import { echoObjects, startEchoServers } from "./support/echo.ts";

const PODS = ["a", "r1"];
/** Connections of these protocols stay in the table after the answer. */
const LASTING: readonly Transport[] = ["udp", "sctp"];
const COMBINATIONS = FAMILIES.flatMap((family) => LASTING.map((protocol) => [family, protocol] as const));

function limited(name: string, n: number, annotations: Readonly<Record<string, string>>): ServiceSpec {
  const prefixed = Object.entries(annotations).map(([key, value]) => [`nft-proxier.dev/${key}`, value]);
  return { name, n, endpoints: PODS, metadata: { annotations: Object.fromEntries(prefixed) as Manifest } };
}

const few = limited("few", 1, { "max-connections": "7" });
const fewToo = limited("few-too", 2, { "max-connections": "7" });
const fewDropped = limited("few-dropped", 3, { "max-connections": "7", "over-limit": "drop" });
const each = limited("each", 4, { "max-connections-per-client": "5" });
const slow = limited("slow", 5, { "rate-per-client": "3/hour burst 6" });
const again = limited("again", 6, { "rate-per-client": "1/second burst 2" });
const both = limited("both", 7, { "max-connections": "8", "max-connections-per-client": "5" });
const later: ServiceSpec = { name: "later", n: 8, endpoints: PODS };
const free: ServiceSpec = { name: "free", n: 9, endpoints: PODS };
const chat: ServiceSpec = { ...limited("chat", 10, { "max-connections": "2" }), endpoints: ["a"], protocols: ["tcp"] };
const local: ServiceSpec = {
  ...limited("local", 11, { "max-connections": "4" }),
  external: "Local",
  internal: "Local",
};
/** Policy Local, without an endpoint on this node. */
const far: ServiceSpec = {
  ...limited("far", 12, { "rate-per-client": "3/hour burst 6" }),
  endpoints: ["r1"],
  external: "Local",
};
const none: ServiceSpec = { ...limited("none", 13, { "rate-per-client": "3/hour burst 6" }), endpoints: [] };
const services = [few, fewToo, fewDropped, each, slow, again, both, later, free, local, far, none];

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  await startEchoServers(cluster, "a");
  await apply(services);
});
afterAll(() => cluster.destroy());
const open: Conversation[] = [];
afterEach(() => {
  for (const conversation of open.splice(0)) conversation.close();
});

async function apply(given: readonly ServiceSpec[]): Promise<void> {
  const onEcho = echoObjects(cluster.lab, chat);
  await cluster.apply([...given.flatMap((service) => serviceObjects(cluster.lab, service)), ...onEcho]);
}

interface Tally {
  served: number;
  /** The other connections, counted by result. */
  readonly others: Record<string, number>;
}

async function tally(
  targets: readonly Target[],
  count: number,
  rest: Omit<Connections, "to" | "count">,
): Promise<Tally> {
  const found: Tally = { served: 0, others: {} };
  for (const to of targets) {
    const counts = await answers(cluster, { to, count, ...rest });
    for (const [answer, times] of counts) {
      if (PODS.includes(answer)) found.served += times;
      else found.others[answer] = (found.others[answer] ?? 0) + times;
    }
  }
  return found;
}

const from = (family: Family, protocol: Transport, source: AddressPair = PLAN.client) => ({ family, protocol, source });
const total = ({ others }: Tally): number => Object.values(others).reduce((sum, times) => sum + times, 0);

describe("max-connections", () => {
  test.for(COMBINATIONS)(
    "connections up to the limit are accepted on all addresses together, and the others refused: %s %s",
    async ([family, protocol]) => {
      const found = await tally(everyWay(few), 5, from(family, protocol));
      expect(found.served).toBe(7);
      expect(Object.keys(found.others)).not.toContain("timeout");
      expect(total(found)).toBe(13);
    },
  );

  test.for(someOf(COMBINATIONS, 3))(
    "each service has its own limit, even if the limits are equal: %s %s",
    async ([family, protocol]) => {
      const found = await tally([clusterIP(fewToo)], 20, from(family, protocol));
      expect(found.served).toBe(7);
      const neighbour = await tally(everyWay(free), 20, from(family, protocol));
      expect(neighbour).toEqual({ served: 80, others: {} });
    },
  );

  test.for(someOf(FAMILIES, 2))(
    "connections over the limit are dropped if the annotation says so: %s",
    async (family) => {
      expect(await tally([loadBalancer(fewDropped)], 7, from(family, "udp"))).toEqual({ served: 7, others: {} });
      const over = await tally([loadBalancer(fewDropped)], 5, { ...from(family, "udp"), timeoutMs: 500 });
      expect(over).toEqual({ served: 0, others: { timeout: 5 } });
    },
  );

  test.for(FAMILIES)("the limit also applies with policies Local: %s", async (family) => {
    const found = await tally(everyWay(local), 3, from(family, "udp"));
    expect(found.served).toBe(4);
  });

  test.for(FAMILIES)("only open TCP connections count: %s", async (family) => {
    const to = clusterIP(chat);
    const connect = async (): Promise<void> => {
      open.push(await Conversation.open(cluster.lab.client, to.address[family], to.port));
    };
    await connect();
    await connect();
    await expect(connect()).rejects.toThrow("ECONNREFUSED");
    for (const conversation of open) expect(await conversation.say("still here")).toBe("still here");
    open.pop()?.close();
    await eventually(connect);
    for (const conversation of open) expect(await conversation.say("and now")).toBe("and now");
    await expect(connect()).rejects.toThrow("ECONNREFUSED");
  });
});

describe("max-connections-per-client", () => {
  test.for(someOf(COMBINATIONS, 3))("each client is accepted up to the limit: %s %s", async ([family, protocol]) => {
    for (const source of [PLAN.client, PLAN.clientSecond]) {
      const found = await tally([clusterIP(each), loadBalancer(each)], 9, from(family, protocol, source));
      expect(found.served).toBe(5);
      expect(total(found)).toBe(13);
    }
  });

  test.for(FAMILIES)(
    "together with max-connections: a connection that is refused for its client does not count for all: %s",
    async (family) => {
      const first = await tally([clusterIP(both)], 20, from(family, "udp"));
      const second = await tally([clusterIP(both)], 20, from(family, "udp", PLAN.clientSecond));
      expect([first.served, second.served]).toEqual([5, 3]);
    },
  );
});

describe("rate-per-client", () => {
  test.for(FAMILIES.flatMap((family) => (["tcp", "udp", "sctp"] as const).map((p) => [family, p] as const)))(
    "the burst is accepted, and then nothing until time has passed: %s %s",
    async ([family, protocol]) => {
      for (const source of [PLAN.client, PLAN.clientSecond]) {
        const found = await tally(everyWay(slow), 4, from(family, protocol, source));
        expect(found.served).toBe(6);
        expect(total(found)).toBe(10);
      }
    },
  );

  test.for(someOf(FAMILIES, 2))("more connections are accepted after some time: %s", async (family) => {
    const first = await tally([clusterIP(again)], 30, from(family, "tcp"));
    expect(first.served).toBeGreaterThanOrEqual(2);
    expect(first.served).toBeLessThan(30);
    await new Promise((resolve) => setTimeout(resolve, patience(2500)));
    const second = await tally([clusterIP(again)], 1, from(family, "tcp"));
    expect(second.served).toBe(1);
  });
});

test.for(someOf(FAMILIES, 2))(
  "a rate counts a packet once even if no endpoint here may receive it: %s",
  async (family) => {
    const away = await tally([loadBalancer(far)], 4, { ...from(family, "udp"), timeoutMs: 300 });
    expect(away).toEqual({ served: 0, others: { timeout: 4 } });
    await apply([...services.filter((service) => service !== far), { ...far, endpoints: PODS }]);
    const here = await tally([loadBalancer(far)], 4, from(family, "udp"));
    await apply(services);
    expect(here.served).toBe(2);
  },
);

test.for(someOf(FAMILIES, 2))(
  "a rate does not count packets that are refused for lack of endpoints: %s",
  async (family) => {
    for (const to of everyWay(none)) {
      const refused = await tally([to], 8, from(family, "udp"));
      expect([refused.served, total(refused)]).toEqual([0, 8]);
    }
    await apply([...services.filter((service) => service !== none), { ...none, endpoints: PODS }]);
    const found = await tally([clusterIP(none)], 8, from(family, "udp"));
    await apply(services);
    expect(found.served).toBe(6);
    // The count is kept while the endpoints are away.
    await apply([...services.filter((service) => service !== none), { ...none, endpoints: PODS }]);
    const again = await tally([loadBalancer(none)], 4, from(family, "udp"));
    await apply(services);
    expect(again.served).toBe(0);
  },
);

test("a limit can be turned on and off while the service serves", async () => {
  const serve = (): Promise<Tally> => tally([clusterIP(later)], 12, from("ip", "udp"));
  expect((await serve()).served).toBe(12);
  const { metadata } = few;
  await apply(services.map((service) => (service === later ? { ...later, metadata: metadata ?? {} } : service)));
  // Connections that were open before are not counted.
  expect((await serve()).served).toBe(7);
  expect((await serve()).served).toBe(0);
  await apply(services);
  expect((await serve()).served).toBe(12);
});

test("`explain` assumes that limits are not exceeded, and says where a connection goes then", async () => {
  const { stdout, code } = await cluster.command([
    "explain",
    "udp",
    "198.51.100.77",
    `${clusterIP(both).address.ip}:80`,
  ]);
  expect(code).toBe(0);
  expect(stdout).toContain("goes to an endpoint");
  expect(stdout).toContain("limit-connections: assuming that the limit of 8 connections is not exceeded");
  expect(stdout).toContain("limit-client-connections: assuming that the limit of 5 connections is not exceeded");
});
