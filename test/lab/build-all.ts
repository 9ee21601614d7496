/** Compiles what tests of the kernel run beside the program. */
import { buildAgent } from "./agent.ts";
import { buildHelpers } from "./build.ts";

buildAgent();
buildHelpers();
