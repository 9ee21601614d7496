/**
 * `npm run bench`: measures every figure of test/bench/README.md on this machine in one run, and compares it with its target.
 *
 *   node test/bench/run.ts [--rounds N] [--before DIR] [SECTION...]      services kernel rolling repair check affinity memory growth exponents packets cluster conntrack commands ports pages handover
 *
 * `--before`: the directory of another build of this project. Loads, changes, restarts and the program's memory are then measured for both,
 * in turns.
 *
 * Prints progress on stderr, then tables (the last one has the targets), and the results as JSON. A missed target is a figure, not a failure: the
 * exit code is 0.
 */
import { existsSync } from "node:fs";
import { cpus, loadavg, release } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { aims } from "./aims.ts";
import { makeImage } from "./image.ts";
import { type Results, SECTIONS, type Section } from "./sections.ts";
import { printAims, printTables } from "./tables.ts";

const NAMES = Object.keys(SECTIONS) as Section[];

/** Load average above which other programs show in the figures. */
const BUSY = 1.5;

const { values, positionals } = parseArgs({
  options: { rounds: { type: "string", default: "3" }, before: { type: "string" } },
  allowPositionals: true,
});
const rounds = Number(values.rounds);
if (!Number.isInteger(rounds) || rounds < 1) throw new Error("--rounds must be a whole number of at least 1");
const before = values.before === undefined ? undefined : resolve(values.before);
if (before !== undefined && !existsSync(join(before, "dist/main.js")))
  throw new Error(`--before: ${before} has no build`);
const scope = before === undefined ? { rounds } : { rounds, before };
const unknown = positionals.filter((name) => !NAMES.includes(name as Section));
if (unknown.length > 0) throw new Error(`unknown section ${unknown.join(", ")}; the sections are ${NAMES.join(", ")}`);

const machine = { cpus: cpus().length, model: cpus()[0]?.model, kernel: release(), node: process.version };
const loadBefore = loadavg()[0];
const results: Results = {};
makeImage();
for (const name of NAMES) if (positionals.length === 0 || positionals.includes(name)) SECTIONS[name](results, scope);
const load = { before: loadBefore, after: loadavg()[0] };
printTables(results);
const list = aims(results);
printAims(list);
if (load.before > BUSY)
  console.log(`the machine was busy (load ${load.before}): figures are what they were beside that`);
process.stdout.write(`${JSON.stringify({ machine, load, ...results, aims: list }, null, 2)}\n`);
