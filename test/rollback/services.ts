/** The services while versions change: services that every version serves alike, and those with features of later versions. */
import { makeService, makeSlice } from "../bench/cluster.ts";
import type { Lab } from "../lab/topology.ts";
import type { Stream } from "../packets/support/load.ts";
import {
  clusterIP,
  loadBalancer,
  type Manifest,
  nodePort,
  serviceObjects,
  type ServiceSpec,
  type Target,
} from "../packets/support/objects.ts";

function annotated(annotations: Readonly<Record<string, string>>): Pick<ServiceSpec, "metadata"> {
  const entries = Object.entries(annotations).map(([key, value]) => [`nft-proxier.dev/${key}`, value] as const);
  return { metadata: { annotations: Object.fromEntries(entries) } };
}

export const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const here: ServiceSpec = { name: "here", n: 2, endpoints: ["b"] };
/** The echo pod's service. */
export const echo: ServiceSpec = { name: "echo", n: 3, endpoints: ["e"] };
const edge: ServiceSpec = { name: "edge", n: 4, endpoints: ["a", "r1"], external: "Local" };
export const sticky: ServiceSpec = { name: "sticky", n: 5, endpoints: ["a", "b"], affinitySeconds: 10_800 };
const ranges = ["198.51.100.0/24", "2001:db8:2::/64"];
const guarded: ServiceSpec = { name: "guarded", n: 6, endpoints: ["r1"], ranges };
const empty: ServiceSpec = { name: "empty", n: 7, endpoints: [] };
const PLAIN = [web, here, echo, edge, sticky, guarded, empty];

const consistent = annotated({ balance: "consistent" });
/** Higher than the load ever needs, so that nothing is rejected. */
const limits = annotated({ "max-connections": "900000", "max-connections-per-client": "800000" });
const even: ServiceSpec = { name: "even", n: 11, endpoints: ["a", "r1"], ...consistent };
const heavy: ServiceSpec = { name: "heavy", n: 12, endpoints: ["b", "r2"], ...annotated({ weights: "zone=x:3" }) };
const limited: ServiceSpec = { name: "limited", n: 13, endpoints: ["a", "r1"], ...limits };
/** New connections still go to it, because the service has no other endpoint. */
const leaving = { pod: "e", ready: false, serving: true, terminating: true };
const drained: ServiceSpec = {
  name: "drained",
  n: 14,
  endpoints: [leaving],
  ...annotated({ "drain-seconds": "3600" }),
};
const evenEcho: ServiceSpec = { name: "even-echo", n: 15, endpoints: ["e"], ...consistent };
const limitedEcho: ServiceSpec = { name: "limited-echo", n: 16, endpoints: ["e"], ...limits };
const FEATURED = [even, heavy, limited, drained, evenEcho, limitedEcho];

/** The first number beyond the addresses of the packet tests' own services. */
const FIRST = 2000;
/** Enough services that a transaction takes some time; no client uses them. */
const OTHERS = 300;
const ENDPOINTS = 5;

/** @param endpoints of the service "web", if they differ from the default. */
export function allObjects(lab: Lab, endpoints = web.endpoints): Manifest[] {
  const others = Array.from({ length: OTHERS }, (_, i) => {
    const pods = Array.from({ length: ENDPOINTS }, (_pod, k) => i * ENDPOINTS + k);
    return [makeService(FIRST + i), makeSlice(FIRST + i, pods)] as unknown as Manifest[];
  });
  const services = [...PLAIN, ...FEATURED].map((service) => (service === web ? { ...web, endpoints } : service));
  return [...services.flatMap((service) => serviceObjects(lab, service)), ...others.flat()];
}

/** Targets that echo servers answer. */
export const OPEN_TO: readonly Target[] = [
  clusterIP(echo),
  nodePort(echo),
  clusterIP(evenEcho),
  clusterIP(limitedEcho),
  clusterIP(drained),
];

export const STREAMS: readonly Stream[] = [
  { from: "client", to: clusterIP(web), protocol: "tcp" },
  { from: "client", to: nodePort(web), protocol: "tcp" },
  { from: "b", to: clusterIP(web), protocol: "tcp" },
  { from: "node", to: clusterIP(here), protocol: "tcp" },
  { from: "client", to: loadBalancer(edge), protocol: "tcp" },
  { from: "client", to: clusterIP(sticky), protocol: "tcp" },
  { from: "client", to: loadBalancer(guarded), protocol: "tcp" },
  { from: "client", to: clusterIP(even), protocol: "tcp" },
  { from: "c", to: nodePort(heavy), protocol: "tcp" },
  { from: "client", to: loadBalancer(limited), protocol: "tcp" },
];
