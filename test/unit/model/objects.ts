/** Objects for tests, as a manifest or the API server would bring them. */
import type { V1EndpointSlice, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";
import { ServiceModel, type ServiceModelOptions } from "../../../src/model/index.js";
import type { Endpoint, IpFamily, Problem, ServicePortView } from "../../../src/model/types.js";

type Json = Record<string, unknown>;

export interface ServiceParts {
  readonly metadata?: Json;
  readonly status?: unknown;
}

/** A Service "default/NAME" with one port 80 unless the spec says otherwise. */
export function service(name: string, spec: Json = {}, { metadata = {}, status }: ServiceParts = {}): V1Service {
  return {
    metadata: { name, namespace: "default", ...metadata },
    spec: { clusterIP: "10.0.0.1", ports: [{ port: 80 }], ...spec },
    ...(status === undefined ? {} : { status }),
  } as unknown as V1Service;
}

/** A slice of service "default/SERVICE"; an endpoint is an address on node "n1", or an object. */
export function slice(
  name: string,
  ofService: string,
  endpoints: readonly (string | Json)[],
  rest: Json = {},
): V1EndpointSlice {
  return {
    metadata: { name, namespace: "default", labels: { "kubernetes.io/service-name": ofService } },
    addressType: "IPv4",
    ports: [{ port: 8080 }],
    endpoints: endpoints.map((endpoint) =>
      typeof endpoint === "string" ? { addresses: [endpoint], nodeName: "n1" } : endpoint,
    ),
    ...rest,
  } as unknown as V1EndpointSlice;
}

export function serviceCIDR(name: string, cidrs: unknown): V1ServiceCIDR {
  return { metadata: { name }, spec: { cidrs } } as unknown as V1ServiceCIDR;
}

export interface ModelUnderTest {
  readonly model: ServiceModel;
  /** "Service default/web spec.ports: reason". */
  readonly problems: string[];
  /** "default/b from default/a: 192.0.2.1:80/TCP (reason)". */
  readonly takeOvers: string[];
  /** The one view of a service with one port. */
  readonly view: (name: string, family?: IpFamily) => ServicePortView;
}

export function newModel(options: Partial<ServiceModelOptions> = {}): ModelUnderTest {
  const problems: string[] = [];
  const takeOvers: string[] = [];
  const model = new ServiceModel({
    families: ["ip", "ip6"],
    node: { nodeName: "here", zone: "a" },
    onProblem: ({ kind, object, field, reason }: Problem) => problems.push(`${kind} ${object} ${field}: ${reason}`),
    onTakeOver: ({ service: name, from, reason, claims }) =>
      takeOvers.push(`${name} from ${from}: ${claims.join(", ")} (${reason})`),
    ...options,
  });
  const view = (name: string, family: IpFamily = "ip") => {
    const [first, ...more] = model.views(family, `default/${name}`);
    if (first === undefined || more.length > 0) throw new Error(`default/${name} has ${more.length} more views, not 0`);
    return first;
  };
  return { model, problems, takeOvers, view };
}

/** "10.1.0.1:8080 10.1.0.2:8080", sorted. */
export function addresses(endpoints: Iterable<Endpoint>): string {
  return [...endpoints]
    .map(({ address, port }) => `${address}:${port}`)
    .sort()
    .join(" ");
}
