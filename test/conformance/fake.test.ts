import { openFake } from "../support/kernel-world.ts";
import { describeKernel } from "./suite.js";

describeKernel("FakeKernel", openFake, false);
