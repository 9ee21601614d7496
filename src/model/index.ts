export type {
  Endpoint,
  IpFamily,
  NodeContext,
  Problem,
  Protocol,
  ReleasedClaim,
  ServicePortView,
  ServiceTarget,
} from "./types.js";
export { ServiceModel, type Dirty, type ServiceModelOptions } from "./service-model.js";
export {
  familyOf,
  formatAddress,
  mergePrefixes,
  packAddress,
  parseAddress,
  parseCIDR,
  prefixContains,
  prefixCovers,
  type Prefix,
} from "./address.js";
