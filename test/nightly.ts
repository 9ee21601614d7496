/**
 * `npm run test:nightly`: everything that runs by itself, one command after another, each with a limit.
 *
 *   node test/nightly.ts [--only NAME[,NAME]]
 *
 * The output of a command goes to build/nightly/NAME.log; a line a minute tells that it still runs. The last lines are one per tier: date,
 * command, tier, result and time. The exit code is 0 only if nothing failed.
 */
import { spawn } from "node:child_process";
import { createWriteStream, mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { root } from "./checks.ts";
import { type NightlyCommand, nightlyCommands, type NightlyLine, nightlyLines } from "./nightly-commands.ts";

const MINUTE = 60_000;

const { values } = parseArgs({ options: { only: { type: "string" } } });
const names = values.only?.split(",") ?? nightlyCommands.map(({ name }) => name);
const unknown = names.filter((name) => nightlyCommands.every((command) => command.name !== name));
if (unknown.length > 0) {
  console.error(`no command "${unknown.join(", ")}"; there are ${nightlyCommands.map(({ name }) => name).join(", ")}`);
  process.exit(2);
}

const directory = path.join(root, "build", "nightly");
mkdirSync(directory, { recursive: true });

/** Runs a command in its own process group, which is killed after the limit. */
async function run(command: NightlyCommand): Promise<readonly NightlyLine[]> {
  const { name, words, limitMinutes } = command;
  const file = path.join(directory, `${name}.log`);
  console.log(
    `${name}: ${words.join(" ")}, at most ${limitMinutes} min; its output goes to ${path.relative(root, file)}`,
  );
  const started = new Date();
  const minutes = (): number => (Date.now() - started.getTime()) / MINUTE;
  const output = createWriteStream(file);
  const [program, ...args] = words as [string, ...string[]];
  const child = spawn(program === "node" ? process.execPath : program, args, {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  child.stdout.pipe(output, { end: false });
  child.stderr.pipe(output, { end: false });
  const end = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
  };
  const interrupted = (): void => {
    end();
    process.exitCode = 130;
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, interrupted);
  const alive = setInterval(() => {
    console.log(`${name}: ${minutes().toFixed(0)} min`);
  }, MINUTE);
  const limit = setTimeout(end, limitMinutes * MINUTE);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  clearInterval(alive);
  clearTimeout(limit);
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, interrupted);
  await new Promise<void>((resolve) => output.end(resolve));
  const isOverdue = code === null && minutes() >= limitMinutes;
  return nightlyLines(command, { started, minutes: minutes(), code, isOverdue, output: readFileSync(file, "utf8") });
}

const lines: NightlyLine[] = [];
for (const command of nightlyCommands.filter(({ name }) => names.includes(name))) {
  const ended = await run(command);
  for (const { text } of ended) console.log(text);
  lines.push(...ended);
  if (process.exitCode === 130) break;
}
console.log(`\n=== summary\n${lines.map(({ text }) => text).join("\n")}`);
const failed = lines.filter(({ ok }) => !ok).length;
console.log(`${lines.length - failed} tiers passed, ${failed} failed`);
process.exitCode ??= failed === 0 ? 0 : 1;
