import { afterAll, beforeAll } from "vitest";

import { release } from "node:os";

import { factsOf } from "../support/kernel-facts.ts";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
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
