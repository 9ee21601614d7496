/** The kinds of objects that the double serves, and the allowed verbs for each. */

export interface Resource {
  readonly kind: string;
  /** Example: "services". */
  readonly plural: string;
  readonly group: string;
  readonly version: string;
  readonly namespaced: boolean;
  /** Field selectors that the real server supports for it, besides metadata.name and metadata.namespace. */
  readonly fields: Readonly<Record<string, (object: KubeJson) => string>>;
}

/** An object as JSON on the wire. */
export interface KubeJson {
  readonly apiVersion?: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

function textAt(object: KubeJson, parent: string, field: string): string {
  const holder = object[parent];
  const value = typeof holder === "object" && holder !== null ? (holder as Record<string, unknown>)[field] : undefined;
  return typeof value === "string" ? value : "";
}

export const RESOURCES: readonly Resource[] = [
  {
    kind: "Service",
    plural: "services",
    group: "",
    version: "v1",
    namespaced: true,
    fields: {
      "spec.clusterIP": (object) => textAt(object, "spec", "clusterIP"),
      "spec.type": (object) => textAt(object, "spec", "type"),
    },
  },
  {
    kind: "EndpointSlice",
    plural: "endpointslices",
    group: "discovery.k8s.io",
    version: "v1",
    namespaced: true,
    fields: {},
  },
  {
    kind: "Node",
    plural: "nodes",
    group: "",
    version: "v1",
    namespaced: false,
    fields: { "spec.unschedulable": () => "" },
  },
  {
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    group: "networking.k8s.io",
    version: "v1",
    namespaced: false,
    fields: {},
  },
  { kind: "Event", plural: "events", group: "events.k8s.io", version: "v1", namespaced: true, fields: {} },
];

export function apiVersionOf(resource: Resource): string {
  return resource.group === "" ? resource.version : `${resource.group}/${resource.version}`;
}

/** Returns "/api/v1" or "/apis/discovery.k8s.io/v1". */
export function groupPath(resource: Resource): string {
  return resource.group === "" ? `/api/${resource.version}` : `/apis/${resource.group}/${resource.version}`;
}

export function resourceOfKind(kind: string): Resource {
  const resource = RESOURCES.find((one) => one.kind === kind);
  if (resource === undefined) throw new Error(`the test API server does not serve objects of kind ${kind}`);
  return resource;
}

/** Rules of ClusterRole system:node-proxier (kube-apiserver's bootstrap policy). Nothing else is allowed. */
const NODE_PROXIER: Readonly<Record<string, readonly string[]>> = {
  "/services": ["list", "watch"],
  "/nodes": ["get", "list", "watch"],
  "discovery.k8s.io/endpointslices": ["list", "watch"],
  "networking.k8s.io/servicecidrs": ["list", "watch"],
  "events.k8s.io/events": ["create", "patch", "update"],
};

export type Verb = "get" | "list" | "watch" | "create" | "patch" | "update" | "delete";

export function isAllowed(verb: Verb, resource: Resource): boolean {
  return NODE_PROXIER[`${resource.group}/${resource.plural}`]?.includes(verb) ?? false;
}
