/**
 * Loaded into the program before it (`node --import`). At the program's end, and at each SIGUSR2, it logs one line on stderr that says how
 * long the event loop was held since the last one. It skips the time in which modules are loaded, before the program listens.
 */
import { subscribe } from "node:diagnostics_channel";
import { writeSync } from "node:fs";
import { LoopWatch } from "./loop-watch.ts";

let watch = new LoopWatch();
subscribe("tracing:module.import:asyncEnd", () => watch.skip());
process.once("exit", tell);
process.on("SIGUSR2", () => {
  tell();
  watch = new LoopWatch();
});

function tell(): void {
  writeSync(2, `${JSON.stringify({ level: "info", msg: "event loop", ...watch.stop() })}\n`);
}
