/** Objects for tests, in the form of a manifest or of the API server. */
import type { V1EndpointSlice, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";
import { type Fields, isFields } from "../../../src/base/unknown.js";
import { ServiceModel, type ServiceModelOptions } from "../../../src/model/service-model.js";
import { type DecoderOptions, nameOf, ObjectDecoder } from "../../../src/objects/decode/object-decoder.js";
import { type Endpoint, NO_ENDPOINTS } from "../../../src/objects/endpoint-list.js";
import type { IpFamily } from "../../../src/base/ip.js";
import type { Problem, ServicePortView } from "../../../src/model/service-port-view.js";

type Json = Record<string, unknown>;

export interface ServiceParts {
  readonly metadata?: Json;
  readonly status?: unknown;
}

/** A Service "default/NAME" with one port 80, unless the spec says otherwise. */
export function service(name: string, spec: Json = {}, { metadata = {}, status }: ServiceParts = {}): V1Service {
  return {
    metadata: { name, namespace: "default", ...metadata },
    spec: { clusterIP: "10.0.0.1", ports: [{ port: 80 }], ...spec },
    status,
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

type ModelOptions = ServiceModelOptions & Pick<DecoderOptions, "allowExternalIPs">;

/** A model with the decoder that a source would have. */
export class DecodingModel extends ServiceModel {
  readonly #decoder: ObjectDecoder;

  constructor(options: ModelOptions) {
    super(options);
    const { allowExternalIPs = true } = options;
    this.#decoder = new ObjectDecoder({ nodeName: options.node.nodeName, allowExternalIPs });
  }

  upsertService(object: V1Service): boolean {
    return this.#upsert("Service", object as unknown as Fields);
  }

  upsertSlice(object: V1EndpointSlice): boolean {
    return this.#upsert("EndpointSlice", object as unknown as Fields);
  }

  upsertServiceCIDR(object: V1ServiceCIDR): boolean {
    return this.#upsert("ServiceCIDR", object as unknown as Fields);
  }

  removeService(name: string): boolean {
    return this.remove("Service", name);
  }

  removeSlice(name: string): boolean {
    return this.remove("EndpointSlice", name);
  }

  removeServiceCIDR(name: string): boolean {
    return this.remove("ServiceCIDR", name);
  }

  #upsert(kind: "Service" | "EndpointSlice" | "ServiceCIDR", object: Fields): boolean {
    if (!isFields(object)) return false;
    const decoded = this.#decoder.decode(kind, nameOf(kind, object) ?? "(no name)", object);
    return decoded.kind !== "Node" && this.upsert(decoded);
  }
}

/** The view of a service port without addresses and endpoints. */
export const PLAIN_VIEW: ServicePortView = {
  service: "default/web",
  portName: "",
  protocol: "TCP",
  port: 80,
  externalIPs: [],
  loadBalancerIPs: [],
  nodePort: 0,
  internalPolicyLocal: false,
  externalPolicyLocal: false,
  affinitySeconds: 0,
  clusterEndpoints: NO_ENDPOINTS,
  localEndpoints: NO_ENDPOINTS,
  hasAnyEndpoint: true,
  resetRemovedEndpoints: false,
};

export interface ModelUnderTest {
  readonly model: DecodingModel;
  /** "Service default/web spec.ports: reason". */
  readonly problems: string[];
  /** "default/b from default/a: 192.0.2.1:80/TCP (reason)". */
  readonly transfers: string[];
  /** The only view of a service with one port. */
  readonly view: (name: string, family?: IpFamily) => ServicePortView;
}

export function newModel(options: Partial<ModelOptions> = {}): ModelUnderTest {
  const problems: string[] = [];
  const transfers: string[] = [];
  const model = new DecodingModel({
    families: ["ip", "ip6"],
    node: { nodeName: "here", zone: "a" },
    onProblem: ({ kind, object, field, reason }: Problem) => problems.push(`${kind} ${object} ${field}: ${reason}`),
    onTransfer: ({ service: name, from, reason, claims }) =>
      transfers.push(`${name} from ${from}: ${claims.join(", ")} (${reason})`),
    ...options,
  });
  const view = (name: string, family: IpFamily = "ip") => {
    const [first, ...more] = model.views(family, `default/${name}`);
    if (first === undefined || more.length > 0) throw new Error(`default/${name} has ${more.length} more views, not 0`);
    return first;
  };
  return { model, problems, transfers, view };
}

/** "10.1.0.1:8080 10.1.0.2:8080", sorted. */
export function addresses(endpoints: Iterable<Endpoint>): string {
  return [...endpoints]
    .map(({ address, port }) => `${address}:${port}`)
    .sort()
    .join(" ");
}
