/** Addresses that no service and no endpoint can have: loopback, unspecified, link-local, multicast and broadcast. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Finished } from "../lab/namespace.ts";
import type { AddressPair } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  externalIP,
  loadBalancer,
  loadBalancerAddress,
  type Manifest,
  nodePort,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { rowTests } from "./support/rows.ts";

const LOOPBACK: AddressPair = { ip: "127.0.0.1", ip6: "::1" };
const SPECIAL = [
  ...["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.7.7", "fe80::7"],
  ...["224.0.0.9", "239.1.2.3", "ff02::9", "255.255.255.255"],
];
const listed = [loadBalancerAddress(50).ip, loadBalancerAddress(50).ip6];

const external: ServiceSpec = {
  name: "external",
  n: 1,
  endpoints: ["a"],
  spec: { externalIPs: [...SPECIAL, ...listed] },
};
const balanced: ServiceSpec = {
  name: "balanced",
  n: 2,
  endpoints: ["a"],
  status: { loadBalancer: { ingress: ["127.0.0.1", "::1", ...listed].map((ip) => ({ ip })) } },
};
const odd: ServiceSpec = { name: "odd", n: 3, endpoints: ["a"] };
const inLoopback: ServiceSpec = {
  name: "in-loopback",
  n: 4,
  endpoints: ["a"],
  families: ["ip"],
  spec: { clusterIP: "127.0.0.1", clusterIPs: ["127.0.0.1"] },
};

/** The services, with slices that contain endpoints that can never answer. */
function objects(cluster: Cluster): Manifest[] {
  return [external, balanced, odd, inLoopback].flatMap((service) =>
    serviceObjects(cluster.lab, service).map((object) => {
      if (service !== odd || object["kind"] !== "EndpointSlice") return object;
      const family = object["addressType"] === "IPv4" ? "." : ":";
      const dead = SPECIAL.filter((address) => address.includes(family) && !address.includes("ffff"));
      const endpoints = object["endpoints"] as readonly Manifest[];
      return { ...object, endpoints: [...dead.map((address) => ({ addresses: [address] })), ...endpoints] };
    }),
  );
}

let cluster: Cluster;
const testRows = rowTests(() => cluster);
let done: Finished;
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  cluster.addSource("loopback", { namespace: cluster.node, address: LOOPBACK });
  const args = await cluster.write(objects(cluster), configuration());
  done = await cluster.command(["run", ...args, "--once", "--allow-incomplete"]);
});
afterAll(() => cluster.destroy());

describe("special addresses are ignored", () => {
  testRows([
    {
      rule: "the node's own port keeps working",
      from: ["nodeItself", "loopback"],
      to: target("loopback", LOOPBACK, SERVICE_PORT),
      expect: "untouched",
    },
    {
      rule: "the service's other addresses work",
      from: ["node", "client"],
      to: [loadBalancer({ ...external, n: 50 }), nodePort(external), nodePort(balanced)],
      expect: { pods: ["a"], masq: true },
    },
    {
      rule: "endpoints that cannot answer are not chosen",
      from: "node",
      to: clusterIP(odd),
      expect: { pods: ["a"], masq: true },
    },
    {
      rule: "other services' external IPs work",
      from: "client",
      to: externalIP(odd),
      expect: { pods: ["a"], masq: true },
    },
  ]);

  test("a warning names the object, field, address and kind of each", () => {
    expect(done.code).toBe(0);
    const warned = done.stderr
      .split("\n")
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line) as Record<string, string>)
      .filter(({ level, msg }) => level === "warn" && msg === "ignored")
      .map(({ object, field, reason }) => `${object} ${field}: ${reason.split(",", 1)[0]}`);
    const kinds = [
      ...["a loopback", "a loopback", "a loopback", "an unspecified", "an unspecified", "a link-local", "a link-local"],
      ...["a multicast", "a multicast", "a multicast", "the broadcast"],
    ];
    for (const [i, kind] of kinds.entries()) {
      const address = SPECIAL[i].replace("::ffff:", "");
      expect(warned).toContain(`default/external spec.externalIPs[${i}]: ${address} is ${kind} address`);
    }
    expect(warned).toContain("default/balanced status.loadBalancer.ingress[0].ip: 127.0.0.1 is a loopback address");
    expect(warned).toContain("default/balanced status.loadBalancer.ingress[1].ip: ::1 is a loopback address");
    expect(warned).toContain("default/in-loopback spec.clusterIPs[0]: 127.0.0.1 is a loopback address");
    expect(warned.filter((line) => /^default\/odd-.*endpoints\[\d\]\.addresses\[0\]/.test(line))).toHaveLength(10);
  });
});
