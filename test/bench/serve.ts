/**
 * Writes services with a build of this program into a network namespace, and ends. Arguments: build netns services protocol [value of
 * --service-counters [annotations ["external" [session affinity [family]]]]]
 */
import { resolve } from "node:path";
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";

import type * as Config from "../../dist/config/load.js";
import type { Family } from "../lab/topology.ts";
import { ipv6, loadBalancerOf, nodePortOf, type Protocol } from "./cluster.ts";
import type * as Proxier from "./proxier.ts";
import { CLUSTER_CIDR, ENDPOINTS, inFamily, NODE_IP, SERVICE_CIDR } from "./road.ts";
import { decoded } from "./decoded.ts";
import type { ServiceCounters } from "../../dist/ruleset/service-counters.js";

const [build, netns, services, protocol, counters = "", annotations = "", external = "", affinity, family = "ip"] =
  process.argv.slice(2);
const from = resolve(build);
const { defaultConfig } = (await import(`${from}/dist/config/load.js`)) as typeof Config;
const { feed, makeObjects, newProxier, openKernel } = (await import(`${from}/test/bench/proxier.ts`)) as typeof Proxier;

const kernel = await openKernel(netns);
const config = {
  ...defaultConfig(),
  bindAddress: NODE_IP,
  clusterCIDRs: [CLUSTER_CIDR, inFamily(CLUSTER_CIDR, "ip6")],
};
const proxier = newProxier(kernel, {
  interfaces: kernel.interfaces,
  watch: false,
  config,
  families: [family as Family],
  ...(counters !== "" && { serviceCounters: counters as ServiceCounters }),
});
proxier.upsert(
  decoded({
    kind: "ServiceCIDR",
    object: { metadata: { name: "kubernetes" }, spec: { cidrs: [SERVICE_CIDR, inFamily(SERVICE_CIDR, "ip6")] } },
  }),
);
const asked = annotations === "" ? [] : annotations.split(",").map((text) => text.split("="));
const prefixed = Object.fromEntries(asked.map(([name, value]) => [`nft-proxier.dev/${name}`, value]));
const objects = makeObjects(Number(services), ENDPOINTS, protocol as Protocol);
await feed(
  proxier,
  objects.map(([service, slice], i) => {
    const [port] = service.spec?.ports ?? [];
    const outside = { type: "LoadBalancer", ports: [{ ...port, nodePort: nodePortOf(i) }] };
    const status = { loadBalancer: { ingress: [{ ip: loadBalancerOf(i) }] } };
    const metadata = { ...service.metadata, annotations: prefixed };
    const spec = { ...service.spec, sessionAffinity: affinity, ...(external !== "" ? outside : {}) };
    const whole = { ...service, metadata, spec, ...(external !== "" ? { status } : {}) };
    return family === "ip6" ? ([serviceIn6(whole), sliceIn6(slice)] as const) : ([whole, slice] as const);
  }),
);
const { ok } = await proxier.sync();
if (!ok) throw new Error("the services could not be written");
await proxier.stop();
await kernel.close();

function serviceIn6(service: V1Service): V1Service {
  const clusterIP = ipv6(service.spec?.clusterIP ?? "");
  return { ...service, spec: { ...service.spec, clusterIP, clusterIPs: [clusterIP], ipFamilies: ["IPv6"] } };
}

function sliceIn6(slice: V1EndpointSlice): V1EndpointSlice {
  const endpoints = slice.endpoints?.map((one) => ({ ...one, addresses: one.addresses.map(ipv6) }));
  return { ...slice, addressType: "IPv6", endpoints };
}
