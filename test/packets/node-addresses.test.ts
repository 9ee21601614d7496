/** Node ports follow the addresses of the node's interfaces at run time. */
import type { ChildProcess } from "node:child_process";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { type AddressPair, FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  configuration,
  type Manifest,
  nodeObject,
  nodePort,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { checkRow, type Expected, untilRow } from "./support/rows.ts";
import { patience } from "../lab/patience.ts";
import { end, logOf } from "./support/daemon.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const SERVED: Expected = { pods: ["a"], masq: true };
/** Far below the sync period of 30 s: no test here waits for a poll. */
const LIMIT_MS = patience(20_000);

/** Addresses behind the default route, unless the node has them itself. */
const LATE: AddressPair = { ip: "203.0.113.250", ip6: "2001:db8:cb::fa:1" };
const OUTSIDE: AddressPair = { ip: "203.0.113.200", ip6: "2001:db8:cb::c8:1" };

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  cluster.addNodeAddress(LATE);
});
afterAll(() => cluster.destroy());

interface Daemon {
  readonly process: ChildProcess;
  log(): string;
}

async function start(settings: Manifest, node = nodeObject()): Promise<Daemon> {
  const objects = [node, serviceCIDRObject(), ...serviceObjects(cluster.lab, web)];
  const args = await cluster.write(objects, configuration(settings), true);
  const process = cluster.start(["run", ...args]);
  return { process, log: logOf(process) };
}

async function change(action: "add" | "delete", pair: AddressPair, device: string): Promise<void> {
  const nodad = action === "add" ? " nodad" : "";
  await cluster.lab.node.ip([
    `address ${action} ${pair.ip}/32 dev ${device}`,
    `address ${action} ${pair.ip6}/128 dev ${device}${nodad}`,
  ]);
}

/** Waits until a node port at this address is `expected`, in both families and for all protocols. */
function becomes(address: AddressPair, expected: Expected, log: () => string): Promise<void> {
  const row = { rule: "", from: "client", to: nodePort(web, address), expect: expected };
  return untilRow(cluster, row, log, LIMIT_MS);
}

describe("nodePortAddresses: CIDRs", () => {
  let daemon: Daemon;
  beforeAll(async () => {
    daemon = await start({
      nodePortAddresses: ["192.0.2.0/24", "203.0.113.240/28", "2001:db8:1::/64", "2001:db8:cb::fa:0/112"],
    });
    await becomes(PLAN.node, SERVED, daemon.log);
  });
  afterAll(() => end(daemon.process));
  // A failed test leaves its addresses.
  afterEach(async () => {
    const addresses = [LATE, OUTSIDE].flatMap(({ ip, ip6 }) => [`${ip}/32`, `${ip6}/128`]);
    const deletions = ["eth0", "eth1", "lo"].flatMap((device) =>
      addresses.map((address) => `address delete ${address} dev ${device}\n`),
    );
    const commands = ["link delete late0\n", ...deletions].join("");
    await cluster.lab.node.run(["ip", "-force", "-batch", "-"], { input: commands });
  });

  test("an address added to an interface is served until it is removed", async () => {
    await becomes(LATE, "untouched", daemon.log);
    for (const device of ["eth0", "lo"]) {
      await change("add", LATE, device);
      await becomes(LATE, SERVED, daemon.log);
      await change("delete", LATE, device);
      await becomes(LATE, "untouched", daemon.log);
    }
  });

  test("an address outside the CIDRs is not served", async () => {
    await change("add", OUTSIDE, "eth1");
    await change("add", LATE, "eth0");
    await becomes(LATE, SERVED, daemon.log);
    const row = { rule: "", from: "client", to: nodePort(web, OUTSIDE), expect: "untouched" } as const;
    expect(await checkRow(cluster, row)).toEqual([]);
    await change("delete", OUTSIDE, "eth1");
    await change("delete", LATE, "eth0");
  });

  test("the addresses of a link disappear with the link", async () => {
    await cluster.lab.node.ip(["link add late0 type veth peer name late1", "link set late0 up", "link set late1 up"]);
    await change("add", LATE, "late0");
    await becomes(LATE, SERVED, daemon.log);
    await cluster.lab.node.ip(["link delete late0"]);
    await becomes(LATE, "untouched", daemon.log);
  });
});

describe("nodePortAddresses: primary", () => {
  test("the node's own IPs are served once an interface has them", async () => {
    const daemon = await start({}, nodeObject({ addresses: FAMILIES.map((family) => LATE[family]) }));
    try {
      await expect
        .poll(daemon.log, { timeout: LIMIT_MS })
        .toContain("node ports are not reachable on any IPv6 address");
      await becomes(LATE, "untouched", daemon.log);
      await change("add", LATE, "eth0");
      await becomes(LATE, SERVED, daemon.log);
      const row = { rule: "", from: "client", to: nodePort(web, PLAN.node), expect: "untouched" } as const;
      expect(await checkRow(cluster, row)).toEqual([]);
    } finally {
      await change("delete", LATE, "eth0");
      await end(daemon.process);
    }
  });
});
