#!/usr/bin/env node
import { basename } from "node:path";
import { main } from "./cli/program.js";

try {
  const calledAs = basename(process.argv[1] ?? "") === "kube-proxy" ? "kube-proxy" : "nft-proxier";
  process.exitCode = await main(process.argv.slice(2), calledAs);
} catch (error) {
  process.stderr.write(`nft-proxier: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exitCode = 1;
}
