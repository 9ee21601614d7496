export type { Endpoint } from "./endpoints.js";
export type {
  HealthCheck,
  IpFamily,
  Problem,
  Protocol,
  Released,
  ReleasedClaim,
  ReleasedEndpoints,
  ServicePortView,
  ServiceTarget,
  TakeOver,
} from "./types.js";
export type { NodeContext } from "./categorize.js";
export { NoLocalEndpointsCounter } from "./no-local-endpoints.js";
export { ServiceModel, type Dirty, type ServiceModelOptions } from "./service-model.js";
