/** The sets and maps of the table, which services fill. Those that kube-proxy has too are of the same type as its own. */
import type { IpFamily } from "../model/types.js";
import type { ElementSet, FieldType, SetSpec } from "../table/types.js";
import { SetName } from "./names.js";

/** The element sets that services fill, by role. */
export type ElementSets = Readonly<Record<keyof typeof SetName, ElementSet>>;

/** From where a packet goes to the list that it draws from, or to what becomes of it without one. */
function verdicts(set: string, key: readonly FieldType[], comment: string): SetSpec {
  return { set, key, data: "verdict", size: "auto", comment };
}

export function setSpecs(family: IpFamily): Readonly<Record<keyof typeof SetName, SetSpec>> {
  const address: FieldType = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const service: readonly FieldType[] = [address, "inet_proto", "inet_service"];
  const nodePort: readonly FieldType[] = ["inet_proto", "inet_service"];
  /** Of a service's lists: what packets may still draw goes late. */
  const endpoints = (set: string, key: readonly FieldType[], comment: string): SetSpec => {
    const data: readonly FieldType[] = [address, "inet_service"];
    return { set, key: [...key, "index"], data, size: "auto", lateLeftovers: true, comment };
  };
  const toClusterList = "policy Local: list for pods and the node";
  const toLocalList = "policy Local: list for everybody else";
  return {
    clusterIPs: { set: SetName.clusterIPs, key: [address], size: "auto", comment: "Active ClusterIPs" },
    nodePortIPs: { set: SetName.nodePortIPs, key: [address], comment: "IPs that accept NodePort traffic" },
    hairpin: {
      set: SetName.hairpin,
      key: [address, address, "inet_proto", "inet_service"],
      size: "auto",
      lateLeftovers: true,
      comment: "service hairpin connections",
    },
    noEndpointServices: verdicts(
      SetName.noEndpointServices,
      service,
      "vmap to drop or reject packets to services with no endpoints",
    ),
    noEndpointNodePorts: verdicts(
      SetName.noEndpointNodePorts,
      nodePort,
      "vmap to drop or reject packets to service nodeports with no endpoints",
    ),
    firewallIPs: verdicts(SetName.firewallIPs, service, "destinations that are subject to LoadBalancerSourceRanges"),
    serviceIPs: verdicts(SetName.serviceIPs, service, "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
    serviceNodePorts: verdicts(SetName.serviceNodePorts, nodePort, "NodePort traffic"),
    serviceEndpoints: endpoints(SetName.serviceEndpoints, service, "endpoint at each index of a service's lists"),
    nodePortEndpoints: endpoints(SetName.nodePortEndpoints, nodePort, "endpoint at each index of a node port's lists"),
    clusterLists: verdicts(SetName.clusterLists, service, toClusterList),
    localLists: verdicts(SetName.localLists, service, toLocalList),
    nodePortClusterLists: verdicts(SetName.nodePortClusterLists, nodePort, toClusterList),
    nodePortLocalLists: verdicts(SetName.nodePortLocalLists, nodePort, toLocalList),
    serviceCIDRs: { set: SetName.serviceCIDRs, key: [address], interval: true, comment: "ServiceCIDRs" },
    resetServices: {
      set: SetName.resetServices,
      key: service,
      size: "auto",
      comment: "services that reset connections to removed endpoints",
    },
    resetNodePorts: {
      set: SetName.resetNodePorts,
      key: nodePort,
      size: "auto",
      comment: "node ports of services that reset connections to removed endpoints",
    },
  };
}
