/** Starts the program, from files (main.ts) or from the startup snapshot (snapshot.ts). */
import { basename } from "node:path";
import { installSignalHandlers } from "./base/signals.js";
import {
  letYoungGenerationGrow,
  nodeProblem,
  setUpCollector,
  setUpForFewServices,
  useCodeCache,
} from "./base/runtime.js";
import { handleStdoutErrors, writeError } from "./cli/stdio.js";
import type * as program from "./cli/commands/program.js";
import { loadAddon } from "./nft/kernel/addon.js";

/**
 * Runs the command line and sets the process's exit code.
 * @param load loads the program's modules, after signals are handled and Node is known to be recent enough.
 */
export async function start(load: () => Promise<Pick<typeof program, "main">>): Promise<void> {
  // This comes first, because PID 1 loses earlier signals.
  installSignalHandlers(() => loadAddon().exitAtEndSignals());

  const problem = nodeProblem(process.versions.node);
  if (problem !== undefined) {
    process.stderr.write(`nft-proxier: ${problem}\n`);
    process.exit(1);
  }

  const [, calledFile = "", firstWord = "-"] = process.argv;
  const staysInMemory = firstWord === "run" || firstWord.startsWith("-");
  // This comes before loading the program's modules, because that already makes the young generation grow.
  if (staysInMemory) {
    setUpForFewServices();
    setUpCollector();
  } else {
    letYoungGenerationGrow();
    useCodeCache(new URL("../cache", import.meta.url));
  }

  try {
    const { main } = await load();
    handleStdoutErrors();
    const calledAs = basename(calledFile) === "kube-proxy" ? "kube-proxy" : "nft-proxier";
    process.exitCode = await main(process.argv.slice(2), calledAs);
  } catch (error) {
    writeError(error instanceof Error ? (error.stack ?? error.message) : String(error));
    process.exitCode = 1;
  }
}
