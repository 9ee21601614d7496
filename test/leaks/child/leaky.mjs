/** Leaks on request, without loading any addon of the project. */
import { createRequire } from "node:module";

const probe = createRequire(import.meta.url)(process.env.NFT_PROXIER_PROBE);
if (process.argv[2] === "leak") probe.leak();
console.log(JSON.stringify(probe.allocatedBytes() > 0));
