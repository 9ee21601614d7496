import { openFakeConntrack } from "./conntrack/bench.js";
import { describeConntrack } from "./conntrack/suite.js";

describeConntrack("FakeConntrack", openFakeConntrack);
