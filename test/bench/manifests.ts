/** A cluster as manifests. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeService, makeSlice, podsOf } from "./cluster.ts";

/** Services per file, each with its slice. */
const PER_FILE = 100;

/** Creates the directory if it does not exist. */
export function writeManifests(directory: string, services: number, endpoints: number): void {
  mkdirSync(directory, { recursive: true });
  for (let at = 0; at < services; at += PER_FILE) {
    const numbers = Array.from({ length: Math.min(PER_FILE, services - at) }, (_, i) => at + i);
    const items = numbers.flatMap((i) => [makeService(i), makeSlice(i, podsOf(i, endpoints))]);
    const name = `${String(at / PER_FILE).padStart(5, "0")}.json`;
    writeFileSync(join(directory, name), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  }
}
