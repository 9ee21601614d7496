/**
 * Connections that endpoints refuse or do not answer, and those that services refuse. They are counted per service and endpoint, and are a
 * problem in `status` if no endpoint of a service accepts any.
 */
import { release } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { EVENTUALLY_MS, eventually } from "../lab/eventually.ts";
import { type AddressPair, FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { ask } from "../../src/daemon/control/client.js";
import type { ServiceList, ServicePortStatus, StatusReport } from "../../src/observe/status-report.js";
import { factsOf } from "../support/kernel-facts.ts";
import { answers } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  loadBalancer,
  type Manifest,
  nodePort,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
  type Target,
} from "./support/objects.ts";

/** No program listens on it. */
const WRONG_PORT = 8081;

const tcp = { protocols: ["tcp"] } as const;
const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], ...tcp };
const remote: ServiceSpec = { name: "remote", n: 2, endpoints: ["r1"], ...tcp };
const silent: ServiceSpec = { name: "silent", n: 3, endpoints: ["b"], ...tcp };
const empty: ServiceSpec = { name: "empty", n: 4, endpoints: [], ...tcp };
const far: ServiceSpec = { name: "far", n: 5, endpoints: ["r1"], external: "Local", ...tcp };
const ranged: ServiceSpec = { name: "ranged", n: 6, endpoints: ["a"], ranges: ["10.0.0.0/8", "fd00::/8"], ...tcp };
const limited: ServiceSpec = {
  ...{ name: "limited", n: 7, endpoints: ["a"], ...tcp },
  metadata: { annotations: { "nft-proxier.dev/rate-per-client": "1/hour burst 1" } },
};
const well: ServiceSpec = { name: "well", n: 8, endpoints: ["a", "r1"], ...tcp };
/** Its endpoint is a program of the node itself. */
const host: ServiceSpec = { name: "host", n: 9, endpoints: ["a"], ...tcp };

let cluster: Cluster;
let socket: string;

/** A service whose endpoints have this port. */
function withPort(service: ServiceSpec, port: number): Manifest[] {
  const slices = FAMILIES.map((family) => {
    const { name, endpoints } = service;
    return sliceObject(cluster.lab, { name: `${name}-${family}`, service: name, family, endpoints, ...tcp, port });
  });
  return [serviceObject(service), ...slices];
}

function objects(webPort: number): Manifest[] {
  const ofHost = withPort(host, WRONG_PORT).map((object) =>
    object["kind"] === "Service"
      ? object
      : {
          ...object,
          endpoints: [{ addresses: [PLAN.node[object["addressType"] === "IPv4" ? "ip" : "ip6"]], nodeName: "node-1" }],
        },
  );
  const others = [silent, empty, far, ranged, limited, well];
  return [
    ...withPort(web, webPort),
    ...withPort(remote, WRONG_PORT),
    ...ofHost,
    ...others.flatMap((service) => serviceObjects(cluster.lab, service)),
  ];
}

beforeAll(async () => {
  cluster = await Cluster.create();
  socket = join(await cluster.temporaryDirectory(), "daemon.sock");
  const drop = "table inet quiet { chain in { type filter hook input priority 0; meta l4proto tcp drop; }; }";
  await cluster.lab.pod("b").namespace.mustRun(["nft", "-f", "-"], { input: drop });
  const args = await cluster.write(objects(WRONG_PORT));
  cluster.start(["run", ...args, "--control-socket", socket]).stderr?.resume();
  await eventually(async () => expect((await status()).families.every(({ inForce }) => inForce)).toBe(true));
});
afterAll(() => cluster.destroy());

const status = async (): Promise<StatusReport> => (await ask(socket, "status")) as StatusReport;

async function portOf({ name }: ServiceSpec, family: Family): Promise<ServicePortStatus> {
  const { items } = (await ask(socket, "services", "default", name)) as ServiceList;
  return items.find((item) => item.family === family)!;
}

async function problemsOf({ name }: ServiceSpec): Promise<string[]> {
  const { problems } = await status();
  return problems.map(({ what }) => what).filter((what) => what.startsWith(`default/${name}:`));
}

interface Way {
  readonly from?: string;
  readonly to: Target;
}

async function connect(family: Family, { from = "client", to }: Way, count: number, timeoutMs?: number) {
  const { namespace, address } = cluster.source(from);
  const source: AddressPair = address ?? { ip: "0.0.0.0", ip6: "::" };
  return answers(cluster, { to, family, protocol: "tcp", source, from: namespace, count, timeoutMs });
}

/** Older kernels count nothing. */
const { countsAdded } = factsOf(release());

describe.skipIf(!countsAdded).each(FAMILIES)("%s", (family) => {
  const ways: readonly (readonly [string, ServiceSpec, Way])[] = [
    ["a client at the node port", web, { to: nodePort(web) }],
    ["a client at the load-balancer IP", remote, { to: loadBalancer(remote) }],
    ["a pod at the ClusterIP", remote, { from: "a", to: clusterIP(remote) }],
    ["the node at the ClusterIP", web, { from: "node", to: clusterIP(web) }],
    ["a client, to a program of the node", host, { to: nodePort(host) }],
  ];
  test.each(ways)(
    "%s: connections that the endpoint refuses are counted, and are a problem",
    async (_, service, way) => {
      const before = (await portOf(service, family)).refusals?.endpoint ?? 0;
      expect(await connect(family, way, 4)).toEqual(new Map([["refused", 4]]));
      await eventually(async () => {
        const { refusals, endpoints } = await portOf(service, family);
        expect(refusals).toEqual({ endpoint: before + 4 });
        expect(endpoints?.map(({ refused }) => refused)).toEqual([before + 4]);
      });
      const words = `${family === "ip" ? "IPv4" : "IPv6"}\\): .*:8081 refused \\d+ connections?, the last \\S+ ago`;
      await eventually(async () =>
        expect((await problemsOf(service)).join("\n")).toMatch(
          new RegExp(`${words}; no endpoint has an open connection`),
        ),
      );
    },
  );

  test("an endpoint that never answers is a problem", async () => {
    const probe = connect(family, { to: clusterIP(silent), from: "a" }, 3, 8000);
    await expect
      .poll(async () => (await problemsOf(silent)).join("\n"), { timeout: EVENTUALLY_MS, interval: 500 })
      .toMatch(/:8080 did not answer 3 connections; no endpoint has an open connection/);
    await probe;
  });

  test.each([
    ["no endpoint", empty, clusterIP(empty), { "no-endpoint": 3 }],
    ["no endpoint on this node, with policy Local", far, loadBalancer(far), { "no-local-endpoint": 3 }],
    ["no endpoint on this node, at the node port", far, nodePort(far), { "no-local-endpoint": 6 }],
    ["a client outside the source ranges", ranged, loadBalancer(ranged), { "source-ranges": 3 }],
  ] as const)("%s: refused connections are counted by reason", async (_, service, to, expected) => {
    await connect(family, { from: "client", to }, 3, 300);
    await eventually(async () => expect((await portOf(service, family)).refusals).toEqual(expected));
    expect(await problemsOf(service)).toEqual([]);
  });

  test("connections over a limit are counted", async () => {
    await connect(family, { to: nodePort(limited) }, 3, 2000);
    await eventually(async () => expect((await portOf(limited, family)).refusals).toEqual({ limits: 2 }));
  });

  test("a service that serves has no counts, and is no problem", async () => {
    const answered = await connect(family, { to: nodePort(well) }, 20);
    expect([...answered.values()].reduce((sum, count) => sum + count, 0)).toBe(20);
    expect((await portOf(well, family)).refusals).toBeUndefined();
    expect(await problemsOf(well)).toEqual([]);
  });
});

if (!countsAdded) {
  test("a kernel that does not count shows no counts, and no problem", async () => {
    expect(await connect("ip", { to: nodePort(web) }, 4)).toEqual(new Map([["refused", 4]]));
    expect((await portOf(web, "ip")).refusals).toBeUndefined();
    expect(await problemsOf(web)).toEqual([]);
  });
}

test("packets are refused even if no more addresses can be counted", async () => {
  for (const family of FAMILIES) {
    const { stdout } = await cluster.node.run(["nft", "-j", "list", "set", family, "kube-proxy", "refusals"]);
    expect(stdout).toContain('"size": 65536');
    const address = (i: number): string =>
      family === "ip" ? `10.1.${i >> 8}.${i & 255}` : `fd00:1::${i.toString(16)}`;
    const elements = Array.from({ length: 65_536 }, (_, i) => `${address(i)} . tcp . 80 . 0x3 timeout 1h`);
    await cluster.lab.node.mustRun(["nft", "-f", "-"], {
      input: `flush set ${family} kube-proxy refusals\nadd element ${family} kube-proxy refusals { ${elements.join(", ")} }\n`,
    });
    for (const [to, expected] of [
      [loadBalancer(ranged), "timeout"],
      [nodePort(far), "timeout"],
      [clusterIP(empty), "unreachable"],
      [nodePort(limited), "refused"],
    ] as const) {
      const [result] = (await connect(family, { to }, 2, 300)).keys();
      expect([to.name, result]).toEqual([to.name, expected]);
    }
    await cluster.lab.node.mustRun(["nft", "flush", "set", family, "kube-proxy", "refusals"]);
  }
});

test.skipIf(!countsAdded)("the problem ends when the service has the right targetPort", async () => {
  await connect("ip", { to: nodePort(web) }, 3);
  await eventually(async () => expect(await problemsOf(web)).not.toEqual([]));
  await cluster.write(objects(8080));
  await eventually(async () => expect(await problemsOf(web)).toEqual([]));
});
