/** What becomes of the priority that a packet has already, by its socket or by rules of other software, on the way to a service. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Namespace } from "../lab/namespace.ts";
import { FAMILIES, type Family } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, POD_PORT, serviceObjects, type ServiceSpec } from "./support/objects.ts";

const PACKETS = 3;
const PRIORITY = 6;
const MARK = "0x5";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a"], external: "Local", affinitySeconds: 600 };

/** Datagrams of one connection, each after the answer to the one before. */
const SEND = `
import socket, sys
family, address, port, priority = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if family == "ip6" else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, int(priority))
s.settimeout(10)
s.connect((address, int(port)))
for _ in range(${PACKETS}):
    s.send(b"?")
    s.recv(1000)
`;

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  const services = [web, edge].flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply(services);
});
afterAll(() => cluster.destroy());

/** Counts what leaves towards pods; what other software does before us, `before`, is a rule at prerouting. */
async function watch(before = ""): Promise<void> {
  const out = `udp dport ${POD_PORT}`;
  await cluster.node.mustRun(["nft", "-f", "-"], {
    input: `
      add table inet probe
      delete table inet probe
      table inet probe {
        counter kept { }
        counter none { }
        counter marked { }
        chain before { type filter hook prerouting priority mangle; ${before}; }
        chain after {
          type filter hook postrouting priority srcnat + 50;
          ${out} meta priority 0:${PRIORITY} counter name kept
          ${out} meta priority 0 counter name none
          ${out} meta mark ${MARK} counter name marked
        }
      }`,
  });
}

async function counted(): Promise<Readonly<Record<string, number>>> {
  const text = await cluster.node.mustRun(["nft", "-j", "list", "counters", "table", "inet", "probe"]);
  const { nftables } = JSON.parse(text) as { nftables: { counter?: { name: string; packets: number } }[] };
  return Object.fromEntries(
    nftables.flatMap(({ counter }) => (counter === undefined ? [] : [[counter.name, counter.packets]])),
  );
}

async function send(from: Namespace, family: Family, address: string, port: number, priority = 0): Promise<void> {
  await from.mustRun(["python3", "-c", SEND, family, address, String(port), String(priority)]);
}

describe.each(FAMILIES)("%s", (family) => {
  test.each([
    ["a service", web],
    ["a service with affinity", edge],
  ])(
    "a socket's own priority is lost for the first packet of a connection to %s, and for no other",
    async (_what, to) => {
      await watch();
      const { address, port } = clusterIP(to);
      await send(cluster.node, family, address[family], port, PRIORITY);
      expect(await counted()).toEqual({ kept: PACKETS - 1, none: 1, marked: 0 });
    },
  );

  test("it stays where no service is asked for", async () => {
    await watch();
    await send(cluster.node, family, cluster.lab.pod("a").address[family], POD_PORT, PRIORITY);
    expect(await counted()).toEqual({ kept: PACKETS, none: 0, marked: 0 });
  });

  test("so is one that rules at prerouting gave, where forwarding does not take it from all packets; marks stay", async () => {
    await watch(`meta l4proto udp meta priority set 0:${PRIORITY} meta mark set ${MARK}`);
    const { address, port } = clusterIP(web);
    await send(cluster.lab.pod("b").namespace, family, address[family], port);
    // IPv4 forwarding sets the priority by the TOS.
    const kept = family === "ip" ? 0 : PACKETS - 1;
    expect(await counted()).toEqual({ kept, none: PACKETS - kept, marked: PACKETS });
  });
});
