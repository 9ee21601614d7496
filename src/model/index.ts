export type {
  Endpoint,
  HealthCheck,
  IpFamily,
  NodeContext,
  Problem,
  Protocol,
  Released,
  ReleasedClaim,
  ReleasedEndpoints,
  ServicePortView,
  ServiceTarget,
  TakeOver,
} from "./types.js";
export { NoLocalEndpointsCounter } from "./no-local-endpoints.js";
export { ServiceModel, type Dirty, type ServiceModelOptions } from "./service-model.js";
