import { openFake } from "./bench.js";
import { describeTable } from "./table/suite.js";

describeTable("FakeKernel", openFake);
