import { openFake } from "./bench.js";
import { describeKernel } from "./suite.js";

describeKernel("FakeKernel", openFake);
