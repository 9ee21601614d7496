/**
 * Makes the startup snapshot: V8's heap with the daemon's modules loaded. A daemon that starts from it uses half the
 * CPU (docs/performance.md).
 *
 *   node deploy/image/snapshot.mjs DIRECTORY
 *
 * DIRECTORY contains the output of bundle.mjs. It must be the final path of the program, because the snapshot contains
 * it. Replaces dist/chunks/daemon.cjs by daemon.blob, which only the same version of Node can read: node
 * --snapshot-blob DIRECTORY/daemon.blob DIRECTORY/dist/main.js [FLAG...].
 */
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

/** Node's modules that V8 cannot serialize. A process loads them on first use. */
export const AFTER_START = ["http", "https", "tls", "cluster"];

/**
 * With fixed seeds, two builds of the same files differ only in the checksum, times and the process id: some 40 bytes. V8 rehashes the heap
 * with a seed of its own when a process starts from the snapshot.
 */
const SEEDS = ["--hash-seed=1", "--random-seed=1"];

function makeSnapshot(directory) {
  const script = path.resolve(directory, "dist/chunks/daemon.cjs");
  const blob = path.resolve(directory, "daemon.blob");
  const flags = ["--no-warnings", "--no-flush-bytecode", ...SEEDS, "--snapshot-blob", blob];
  execFileSync(process.execPath, [...flags, "--build-snapshot", script], { stdio: "inherit" });
  writeFileSync(blob, withCodeOf(readFileSync(blob), loadedAfterStart()));
  rmSync(script);
}

/** Returns Node's own modules that AFTER_START loads. */
function loadedAfterStart() {
  const loaded = (names) => {
    const print = `${names.map((name) => `require("${name}");`).join("")}console.log(process.moduleLoadList.join("\\n"))`;
    return execFileSync(process.execPath, ["-e", print], { encoding: "utf8" }).split("\n");
  };
  const before = new Set(loaded([]));
  const names = loaded(AFTER_START).filter((line) => !before.has(line));
  return new Set(names.map((line) => line.replace(/^NativeModule /, "")));
}

/**
 * Returns the snapshot with the compiled code of only these Node modules. Node adds the code of all its modules, 5 MB
 * that a process keeps in memory. The file ends with a list (src/node_snapshotable.cc, SnapshotData::ToFile): its
 * length, then the name and code of each module. Each is preceded by its length; lengths have eight bytes.
 */
function withCodeOf(data, names) {
  const length = (at) => (at + 8 <= data.length && data.readUInt32LE(at + 4) === 0 ? data.readUInt32LE(at) : -1);
  const listAt = (start) => {
    const entries = [];
    let at = start + 8;
    for (let left = length(start); left > 0; left--) {
      const nameLength = length(at);
      if (nameLength < 1 || nameLength > 100) return undefined;
      const codeLength = length(at + 8 + nameLength);
      if (codeLength < 1) return undefined;
      const end = at + 16 + nameLength + codeLength;
      if (end > data.length) return undefined;
      entries.push({ name: data.toString("latin1", at + 8, at + 8 + nameLength), bytes: data.subarray(at, end) });
      at = end;
    }
    return at === data.length && entries.length > 1 ? entries : undefined;
  };
  for (let start = 0; start < data.length; start++) {
    const entries = listAt(start);
    if (entries === undefined) continue;
    const kept = entries.filter(({ name }) => names.has(name));
    const count = Buffer.alloc(8);
    count.writeUInt32LE(kept.length);
    return Buffer.concat([data.subarray(0, start), count, ...kept.map(({ bytes }) => bytes)]);
  }
  throw new Error("the snapshot's list of compiled modules was not found: Node has changed its format");
}

if (import.meta.main) {
  const [target] = process.argv.slice(2);
  if (target === undefined) throw new Error("usage: node deploy/image/snapshot.mjs DIRECTORY");
  makeSnapshot(target);
}
