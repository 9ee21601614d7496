/**
 * Writes services with a build of this program into a network namespace, and ends. Arguments: build netns services protocol [value of
 * --service-counters [annotations ["external"]]]
 */
import { resolve } from "node:path";

import type * as Config from "../../dist/config/load.js";
import { loadBalancerOf, nodePortOf, type Protocol } from "./cluster.ts";
import type * as Proxier from "./proxier.ts";
import { CLUSTER_CIDR, ENDPOINTS, NODE_IP, SERVICE_CIDR } from "./road.ts";
import { decoded } from "./decoded.ts";
import type { ServiceCounters } from "../../dist/ruleset/service-counters.js";

const [build, netns, services, protocol, counters = "", annotations = "", external = ""] = process.argv.slice(2);
const from = resolve(build);
const { defaultConfig } = (await import(`${from}/dist/config/load.js`)) as typeof Config;
const { feed, makeObjects, newProxier, openKernel } = (await import(`${from}/test/bench/proxier.ts`)) as typeof Proxier;

const kernel = await openKernel(netns);
const config = { ...defaultConfig(), bindAddress: NODE_IP, clusterCIDRs: [CLUSTER_CIDR] };
const proxier = newProxier(kernel, {
  interfaces: kernel.interfaces,
  watch: false,
  config,
  ...(counters !== "" && { serviceCounters: counters as ServiceCounters }),
});
proxier.upsert(
  decoded({
    kind: "ServiceCIDR",
    object: { metadata: { name: "kubernetes" }, spec: { cidrs: [SERVICE_CIDR] } },
  }),
);
const asked = annotations === "" ? [] : annotations.split(",").map((text) => text.split("="));
const prefixed = Object.fromEntries(asked.map(([name, value]) => [`nft-proxier.dev/${name}`, value]));
const objects = makeObjects(Number(services), ENDPOINTS, protocol as Protocol);
await feed(
  proxier,
  objects.map(([service, slice], i) => {
    const [port] = service.spec?.ports ?? [];
    const spec = { ...service.spec, type: "LoadBalancer", ports: [{ ...port, nodePort: nodePortOf(i) }] };
    const status = { loadBalancer: { ingress: [{ ip: loadBalancerOf(i) }] } };
    const metadata = { ...service.metadata, annotations: prefixed };
    return [{ ...service, metadata, ...(external !== "" ? { spec, status } : {}) }, slice] as const;
  }),
);
const { ok } = await proxier.sync();
if (!ok) throw new Error("the services could not be written");
await proxier.stop();
await kernel.close();
