/** Compiles the programs that kernel tests run beside the daemon. */
import { buildAgent } from "./agent.ts";
import { buildHelpers } from "./build.ts";

buildAgent();
buildHelpers();
