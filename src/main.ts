#!/usr/bin/env node
import { basename } from "node:path";
import { installSignalHandlers } from "./base/signals.js";
import {
  holdYoungGeneration,
  letYoungGenerationGrow,
  limitYoungGeneration,
  nodeProblem,
  setUpCollector,
  useCodeCache,
} from "./base/runtime.js";
import { ignoreGoneReader, writeError } from "./cli/stdio.js";
import { loadAddon } from "./kernel/addon.js";

// Ahead of all else: what comes before is lost to PID 1.
installSignalHandlers(() => loadAddon().exitAtEndSignals());

const problem = nodeProblem(process.versions.node);
if (problem !== undefined) {
  process.stderr.write(`nft-proxier: ${problem}\n`);
  process.exit(1);
}

const [, calledFile = "", firstWord = "-"] = process.argv;
const staysInMemory = firstWord === "run" || firstWord.startsWith("-");
// Ahead of the program's modules: reading them is the first that makes it grow.
if (staysInMemory) {
  holdYoungGeneration();
  setUpCollector();
} else {
  letYoungGenerationGrow();
  useCodeCache(new URL("../cache", import.meta.url));
}

try {
  const { main } = await import("./cli/program.js");
  if (staysInMemory) limitYoungGeneration();
  ignoreGoneReader();
  const calledAs = basename(calledFile) === "kube-proxy" ? "kube-proxy" : "nft-proxier";
  process.exitCode = await main(process.argv.slice(2), calledAs);
} catch (error) {
  writeError(error instanceof Error ? (error.stack ?? error.message) : String(error));
  process.exitCode = 1;
}
