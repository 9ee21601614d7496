/**
 * Loaded into the program ahead of it (`node --import`): when it ends, one line on stderr as its log's say how long its event loop was
 * held. The time in which its own modules are loaded is left out: nothing listens yet.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { writeSync } from "node:fs";
import { LoopWatch } from "./loop-watch.ts";

const LOADED = "tracing:module.import:asyncEnd";
const watch = new LoopWatch();

/** The program's first import is that of all its modules. */
function loaded(message: unknown): void {
  if (!(message as { url?: string }).url?.endsWith("/cli/program.js")) return;
  watch.reset();
  unsubscribe(LOADED, loaded);
}

subscribe(LOADED, loaded);
process.once("exit", () => {
  writeSync(2, `${JSON.stringify({ level: 30, msg: "event loop", ...watch.stop() })}\n`);
});
