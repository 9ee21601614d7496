/** Leaks, when told so; in any case loads no addon of the project's. */
import { createRequire } from "node:module";

const probe = createRequire(import.meta.url)(process.env.NFT_PROXIER_PROBE);
if (process.argv[2] === "leak") probe.leak();
console.log(JSON.stringify(probe.allocatedBytes() > 0));
