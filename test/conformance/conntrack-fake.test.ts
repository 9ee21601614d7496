import { openFakeConntrack } from "../support/conntrack-world.ts";
import { describeConntrack } from "./conntrack/suite.js";

describeConntrack("FakeConntrack", openFakeConntrack);
