import { afterAll, beforeAll } from "vitest";

import { describeIsolation, describeIsolationAmongMany } from "./quarantine.js";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

const open = openReal(() => namespace);
describeIsolation("NftKernel", open);
describeIsolationAmongMany("NftKernel", open);
