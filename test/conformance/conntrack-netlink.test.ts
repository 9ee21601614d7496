import { afterAll, beforeAll } from "vitest";
import { openNetlinkConntrack } from "./conntrack/bench.js";
import { describeConntrack } from "./conntrack/suite.js";
import { makeNamespace, type Namespace } from "./real.js";

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

describeConntrack(
  "NetlinkConntrack",
  openNetlinkConntrack(() => namespace),
);
