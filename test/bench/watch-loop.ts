/**
 * Loaded into the program ahead of it (`node --import`): when it ends, and at SIGUSR2 of what was since the last, one line on stderr as its log's say how long its event loop was
 * held. The time in which modules are loaded is skipped: that is before anything listens.
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
