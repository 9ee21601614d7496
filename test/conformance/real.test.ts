import { afterAll, beforeAll } from "vitest";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { describeKernel } from "./suite.js";

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

describeKernel(
  "NftKernel",
  openReal(() => namespace),
  true,
);
