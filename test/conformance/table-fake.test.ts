import { openFake } from "../support/kernel-world.ts";
import { describeTable } from "./table/suite.js";

describeTable("FakeKernel", openFake);
