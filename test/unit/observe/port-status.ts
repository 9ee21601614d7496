import type { ServicePortStatus } from "../../../src/observe/status-report.js";

/** A port of "default/web" with one endpoint, and no address yet. */
export const PORT_STATUS: ServicePortStatus = {
  namespace: "default",
  name: "web",
  portName: "",
  protocol: "TCP",
  port: 80,
  family: "ip",
  externalIPs: [],
  loadBalancerIPs: [],
  nodePort: 0,
  internalTrafficPolicy: "Cluster",
  externalTrafficPolicy: "Cluster",
  affinitySeconds: 0,
  ready: 1,
  serving: 1,
  total: 1,
  state: "active",
};
