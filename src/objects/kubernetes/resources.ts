/** The four kinds that are followed, and the request for each. */
import type { KubeKind } from "../object-sink.js";

export interface Resource {
  readonly kind: KubeKind;
  readonly apiVersion: string;
  /** Path of the collection. */
  readonly path: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Skip the kind if the server lacks it (before Kubernetes 1.33) or an older role does not allow it. */
  readonly optional: boolean;
  /** Nothing can be served before its first list. The Node is waited for elsewhere, with a time limit. */
  readonly required: boolean;
}

/** The same selections as kube-proxy's: we do not receive objects that it never sees. */
export function resources(nodeName: string): readonly Resource[] {
  return [
    {
      kind: "Service",
      apiVersion: "v1",
      path: "/api/v1/services",
      labelSelector: "!service.kubernetes.io/service-proxy-name",
      fieldSelector: "spec.clusterIP!=None",
      optional: false,
      required: true,
    },
    {
      kind: "EndpointSlice",
      apiVersion: "discovery.k8s.io/v1",
      path: "/apis/discovery.k8s.io/v1/endpointslices",
      labelSelector: "!service.kubernetes.io/headless",
      optional: false,
      required: true,
    },
    {
      kind: "Node",
      apiVersion: "v1",
      path: "/api/v1/nodes",
      fieldSelector: `metadata.name=${nodeName}`,
      optional: false,
      required: false,
    },
    {
      kind: "ServiceCIDR",
      apiVersion: "networking.k8s.io/v1",
      path: "/apis/networking.k8s.io/v1/servicecidrs",
      optional: true,
      required: false,
    },
  ];
}

/** Path and query of a request for a collection. */
export function collectionPath(resource: Resource, query: Readonly<Record<string, string>>): string {
  const parameters = new URLSearchParams(query);
  if (resource.labelSelector !== undefined) parameters.set("labelSelector", resource.labelSelector);
  if (resource.fieldSelector !== undefined) parameters.set("fieldSelector", resource.fieldSelector);
  return `${resource.path}?${parameters.toString()}`;
}
