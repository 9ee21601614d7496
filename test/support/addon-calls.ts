import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";

const SOURCES = path.join(import.meta.dirname, "../../src");

/**
 * Returns the names of the addon's functions that the program calls, sorted: `addon.open(`, `this.#addon.close(`,
 * `loadAddon().exitAtEndSignals(`.
 */
export function addonCalls(): string[] {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  const texts = files.map((name) => readFileSync(path.join(SOURCES, name), "utf8"));
  const calls = texts.flatMap((text) => [...text.matchAll(/\b(?:addon|loadAddon\(\))\.(\w+)\(/g)]);
  return [...new Set(calls.map(([, name]) => name))].toSorted();
}
