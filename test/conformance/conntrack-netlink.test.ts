import { afterAll, beforeAll } from "vitest";
import { openNetlinkConntrack } from "../support/conntrack-world.ts";
import { describeConntrack } from "./conntrack/suite.js";
import { makeNamespace, type Namespace } from "../support/real-kernel.ts";

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

describeConntrack(
  "NetlinkConntrack",
  openNetlinkConntrack(() => namespace),
);
