/** The services and endpoints of the cases (cases.ts), with their history. */
import { FormerTargets } from "../../../src/conntrack/reconcile/former-targets.js";
import { type IpFamily, parseAddress } from "../../../src/base/ip.js";
import { DecodingModel } from "../model/objects.js";
import type { Protocol } from "../../../src/base/protocols.js";

export const FAMILIES: readonly IpFamily[] = ["ip", "ip6"];

/** Cases are written in IPv4; the IPv6 counterpart of 10.0.0.9 is fd00:10::9. */
export function inFamily(family: IpFamily, address: string): string {
  if (family === "ip") return address;
  const [a, b, c, d] = address.split(".");
  return parseAddress(`fd00:${a}:${b}:${c}::${d}`) ?? address;
}

export const NODE_ADDRESSES = ["192.0.2.10", "192.0.2.11"] as const;

interface Spec {
  readonly clusterIP: string;
  readonly ports: readonly Readonly<Record<string, unknown>>[];
  readonly externalIPs?: readonly string[];
  readonly balancers?: readonly string[];
  readonly annotations?: Readonly<Record<string, string>>;
  readonly rest?: Readonly<Record<string, unknown>>;
}

const both = (address: string): string[] => FAMILIES.map((family) => inFamily(family, address));

export function serviceObject(name: string, spec: Spec) {
  const { clusterIP, ports, externalIPs = [], balancers = [], annotations, rest } = spec;
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: "default", annotations },
    spec: {
      type: "NodePort",
      clusterIP,
      clusterIPs: both(clusterIP),
      ipFamilies: ["IPv4", "IPv6"],
      ports: ports.map((port) => ({
        name: `${String(port["protocol"])}-${String(port["target"])}`.toLowerCase(),
        ...port,
      })),
      externalIPs: externalIPs.flatMap(both),
      ...rest,
    },
    status: { loadBalancer: { ingress: balancers.flatMap(both).map((ip) => ({ ip })) } },
  };
}

interface EndpointSpec {
  readonly address: string;
  readonly ready?: boolean;
  readonly serving?: boolean;
  readonly terminating?: boolean;
}

export function sliceObjects(
  service: string,
  endpoints: readonly EndpointSpec[],
  ports: readonly { readonly protocol: Protocol; readonly target: number }[],
) {
  return FAMILIES.map((family) => ({
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: `${service}-${family}`, namespace: "default", labels: { "kubernetes.io/service-name": service } },
    addressType: family === "ip" ? "IPv4" : "IPv6",
    ports: ports.map(({ protocol, target }) => ({
      name: `${protocol}-${target}`.toLowerCase(),
      protocol,
      port: target,
    })),
    endpoints: endpoints.map(({ address, ready = true, serving = ready, terminating = false }) => ({
      addresses: [inFamily(family, address)],
      nodeName: "elsewhere",
      conditions: { ready, serving, terminating },
    })),
  }));
}

const UDP = { protocol: "UDP", target: 5353 } as const;
const SCTP = { protocol: "SCTP", target: 5353 } as const;
const TCP = { protocol: "TCP", target: 8080 } as const;
const RESET = { "nft-proxier.dev/reset-removed-endpoints": "true" };

/** Builds the services of the cases with their history; `told` is called after each change. */
function buildWorld(told: (model: DecodingModel) => void): DecodingModel {
  const model = new DecodingModel({
    families: FAMILIES,
    node: { nodeName: "here" },
    trackRemovals: true,
    onProblem: ({ object, field, reason }) => {
      throw new Error(`${object} ${field}: ${reason}`);
    },
  });
  const put = (name: string, spec: Spec): void => void model.upsertService(serviceObject(name, spec) as never);
  const slices = (...of: Parameters<typeof sliceObjects>): void => {
    for (const object of sliceObjects(...of)) model.upsertSlice(object);
  };
  const dnsPorts = [UDP, SCTP, { ...TCP, target: 5353 }].map((port) => ({ ...port, port: 53, nodePort: 30053 }));
  put("dns", {
    clusterIP: "10.0.0.10",
    ports: dnsPorts,
    externalIPs: ["192.0.2.100"],
    balancers: ["203.0.113.1"],
    rest: { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" },
  });
  slices(
    "dns",
    [
      { address: "10.1.0.1" },
      { address: "10.1.0.2", ready: false, serving: true, terminating: true },
      { address: "10.1.0.3", ready: false },
      { address: "10.1.0.4", ready: true, serving: false },
      { address: "10.1.0.5" },
    ],
    [UDP, SCTP, { ...TCP, target: 5353 }],
  );
  put("emptied", { clusterIP: "10.0.0.20", ports: [{ ...UDP, port: 53 }] });
  slices("emptied", [{ address: "10.1.0.20" }], [UDP]);
  put("idle", { clusterIP: "10.0.0.21", ports: [{ ...UDP, port: 53 }] });
  slices("idle", [{ address: "10.1.0.21", ready: false, terminating: true }], [UDP]);
  put("deleted", {
    clusterIP: "10.0.0.30",
    ports: [
      { ...UDP, port: 53, nodePort: 30030 },
      { ...TCP, port: 80 },
    ],
    externalIPs: ["192.0.2.130", "192.0.2.131"],
    annotations: RESET,
  });
  slices("deleted", [{ address: "10.1.0.30" }], [UDP, TCP]);
  put("changed", {
    clusterIP: "10.0.0.31",
    ports: [{ ...UDP, port: 53, nodePort: 30031 }],
    externalIPs: ["192.0.2.101"],
  });
  slices("changed", [{ address: "10.1.0.31" }], [UDP]);
  put("giver", { clusterIP: "10.0.0.40", ports: [{ ...UDP, port: 53 }], externalIPs: ["192.0.2.140"] });
  slices("giver", [{ address: "10.1.0.40" }], [UDP]);
  put("asking", { clusterIP: "10.0.0.60", ports: [{ ...TCP, port: 80, nodePort: 30060 }], annotations: RESET });
  slices(
    "asking",
    [{ address: "10.1.0.60" }, { address: "10.1.0.61", ready: false, serving: false, terminating: true }],
    [TCP],
  );
  put("asking-emptied", { clusterIP: "10.0.0.62", ports: [{ ...TCP, port: 80 }], annotations: RESET });
  told(model);

  for (const family of FAMILIES) model.removeSlice(`default/emptied-${family}`);
  model.removeService("default/deleted");
  for (const family of FAMILIES) model.removeSlice(`default/deleted-${family}`);
  put("changed", { clusterIP: "10.0.0.31", ports: [{ ...UDP, port: 53 }], externalIPs: ["192.0.2.101"] });
  told(model);
  put("changed", { clusterIP: "10.0.0.31", ports: [{ ...UDP, port: 54 }], externalIPs: ["192.0.2.101"] });
  put("giver", { clusterIP: "10.0.0.40", ports: [{ ...UDP, port: 53 }] });
  put("taker", { clusterIP: "10.0.0.41", ports: [{ ...UDP, port: 53 }], externalIPs: ["192.0.2.140"] });
  slices("taker", [{ address: "10.1.0.41" }], [UDP]);
  told(model);
  put("changed", { clusterIP: "10.0.0.31", ports: [{ ...UDP, port: 54 }] });
  told(model);
  return model;
}

/** Former targets that the service remembers after all changes. */
export function worldWithFormer(): { readonly model: DecodingModel; readonly former: FormerTargets } {
  const former = new FormerTargets();
  const model = buildWorld((world) => {
    for (const { address, endpoints, service } of world.takeRemovals()) {
      const cause = [...world.targets(address.family, service)].length > 0 ? "changed" : "deleted";
      former.add(address, { cause, endpoints });
    }
  });
  for (const claim of foundInTable()) former.add(claim, { cause: "found", endpoints: undefined });
  return { model, former };
}

/** Addresses in the table that was taken over that no service has. */
function foundInTable() {
  return FAMILIES.map((family) => ({
    family,
    address: inFamily(family, "10.0.0.50"),
    protocol: "UDP" as const,
    port: 53,
  }));
}

export function nodePortAddresses(family: IpFamily): string[] {
  return NODE_ADDRESSES.map((address) => inFamily(family, address));
}
