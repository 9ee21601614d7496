/**
 * The entry of the image's startup snapshot (deploy/image/snapshot.mjs): V8's heap with the modules for serving, loaded and evaluated. A daemon
 * that starts from it reads that heap instead of files, and compiles hardly anything.
 *
 * Code that runs while the snapshot is built must not depend on this machine: no environment, no time, no addon, no sockets.
 */
import { startupSnapshot } from "node:v8";
import * as program from "./cli/commands/program.js";
import { loadAddon } from "./nft/kernel/addon.js";
import { start } from "./start.js";
// Otherwise these modules are loaded with import().
/* oxlint-disable import/no-unassigned-import */
import "pino";
import "./cli/commands/proxy.js";
import "./cli/commands/serve.js";
import "./daemon/daemon.js";
/* oxlint-enable import/no-unassigned-import */

function load(): Promise<typeof program> {
  const [, file = ""] = process.execArgv.slice(process.execArgv.indexOf("--snapshot-blob"));
  void loadAddon().releaseStartupSnapshot(file);
  return Promise.resolve(program);
}

startupSnapshot.setDeserializeMainFunction(() => void start(load));
