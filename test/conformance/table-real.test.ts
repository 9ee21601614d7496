import { afterAll, beforeAll } from "vitest";

import { release } from "node:os";

import { factsOf } from "./kernel-facts.js";
import { makeNamespace, openReal, type Namespace } from "./real.js";
import { describeTable } from "./table/suite.js";

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

describeTable(
  "NftKernel",
  openReal(() => namespace),
  factsOf(release()),
);
