/**
 * `npm run test:kernels`: boots Debian's kernels and runs test tiers inside.
 *
 *   node test/kernels/run.ts [--arch arm64] [--only 5.10,6.1,6.12,newest] [--tiers packets,conformance] [--minutes N]
 *                            [--guests N] [--qemu] [--without MODULE,…] [--monitor SOCKET] [FILTER...]
 *
 * --arch     emulate a machine with this processor; only arm64. Runs 6.1 unless --only names others
 * --only     only these kernels
 * --tiers    only these tiers (default: conformance and packets; with --arch arm64, packets and library)
 * --minutes  kill a kernel's guest after this many minutes (default 60)
 * --guests   number of guests that run in parallel (default 2, or 1 if one is emulated)
 * --qemu     emulate Debian's own builds, even if the far quicker User Mode Linux from Debian's sources would do
 * --without  leave these modules out of the guest, for example "nf_conntrack_netlink": some kernels lack them (--qemu)
 * --monitor  create a Unix socket for qemu's monitor: `stop` pauses the guest, `cont` resumes it (--qemu)
 * FILTER     run only test files whose path contains it (default with --arch arm64: ARM64_FILES below)
 *
 * The last line is `N passed, N failed, N skipped`. The exit code is 0 only if nothing failed.
 */
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { root } from "../checks.ts";
import { mustRun } from "../lab/debian.ts";
import { ARM64_TOOLS, arm64Binaries, ownBinaries } from "./binaries.ts";
import {
  type Architecture,
  type DebianKernel,
  debianKernels,
  fetchKernel,
  kernelCache,
  type Machine,
  type UnpackedKernel,
} from "./debian-kernels.ts";
import { type GuestEvent, runGuest } from "./guest.ts";
import { writeJob, writeUserland } from "./image.ts";
import { buildUml, missingTools } from "./uml.ts";

const { values: options, positionals: filters } = parseArgs({
  allowPositionals: true,
  options: {
    arch: { type: "string" },
    only: { type: "string" },
    tiers: { type: "string" },
    minutes: { type: "string", default: "60" },
    guests: { type: "string" },
    qemu: { type: "boolean", default: false },
    without: { type: "string", default: "" },
    monitor: { type: "string" },
  },
});

/** How many times as long as on hardware tests wait: a guest in User Mode Linux has one processor, which it shares. */
const SLOW = { qemu: 10, uml: 4 };
/** Longer tests are reported while the guest runs; otherwise an hour could pass without output. */
const LONG_MS = 60_000;
/** Test files that do not involve a kernel: `npm test` runs them, and a guest adds nothing. */
const KERNEL_FREE = [
  "test/conformance/*fake.test.ts",
  "test/conformance/faults.test.ts",
  "test/packets/chi-squared.test.ts",
];

/**
 * The default files on arm64: addresses, node ports, affinity, services without endpoints, source ranges, missing expressions, and the
 * packed library. A FILTER selects others.
 */
const ARM64_FILES = [
  ...["endpoints.", "affinity.", "source-ranges.", "preflight-kernel."].map((name) => `packets/${name}`),
  "library/cookbook",
];

interface Result {
  readonly kernel: DebianKernel;
  readonly release: string;
  readonly passed: number;
  readonly failures: readonly string[];
  /** Tests that did not run, each with the reason. */
  readonly leftOut: readonly string[];
  readonly minutes: number;
}

if (options.arch !== undefined && options.arch !== "arm64") fail(`--arch ${options.arch}: only arm64 is emulated`);
const architecture: Architecture = options.arch ?? "amd64";
const isArm64 = architecture === "arm64";
const tiers = options.tiers ?? (isArm64 ? "packets,library" : "conformance,packets");
const files = isArm64 && filters.length === 0 ? ARM64_FILES : filters;

function fail(message: string): never {
  console.error(`test:kernels: ${message}`);
  process.exit(1);
}

function checkMachine(machines: ReadonlySet<Machine>): void {
  if (process.arch !== "x64")
    fail("guests with x86-64 run this machine's programs, and the others its compilers: an x86-64 machine is needed");
  const directories = (process.env["PATH"] ?? "").split(":");
  const isThere = (program: string): boolean => directories.some((name) => existsSync(path.join(name, program)));
  const missing = machines.has("uml") ? [...missingTools(isThere)] : [];
  const emulator = isArm64 ? ARM64_TOOLS : { "qemu-system-x86_64": "qemu-system-x86" };
  if (machines.has("qemu"))
    missing.push(...Object.entries(emulator).flatMap(([program, name]) => (isThere(program) ? [] : [name])));
  if (missing.length > 0) {
    const what = `programs that ${machines.has("uml") ? "compile and " : ""}run kernels are missing`;
    fail(`${what}. Install them with:\n\n    sudo apt-get install -y --no-install-recommends ${missing.join(" ")}\n`);
  }
  for (const tool of ["apt-get", "apt-cache", "dpkg-deb"])
    if (!isThere(tool)) fail(`${tool} is missing; Debian's kernels are fetched with it`);
}

function selectKernels(): readonly DebianKernel[] {
  // Only Debian's own builds have modules, and only qemu has a monitor.
  const emulate = isArm64 || options.qemu || options.without !== "" || options.monitor !== undefined;
  const kernels = debianKernels.map((kernel) => (emulate ? { ...kernel, machine: "qemu" as const } : kernel));
  const only = options.only ?? (isArm64 ? "6.1" : undefined);
  if (only === undefined) return kernels;
  return only.split(",").map((name) => {
    const kernel = kernels.find((candidate) => candidate.name === name || candidate.suite === name);
    return kernel ?? fail(`no kernel "${name}"; there are ${kernels.map((one) => one.name).join(", ")}`);
  });
}

/** Collects a guest's output, and reports progress on the terminal. */
class Progress {
  readonly #label: string;
  readonly #start = Date.now();
  /** Planned files that have not started. */
  readonly #waiting = new Set<string>();
  /** State of each file that has started but not ended. */
  readonly #open = new Map<string, { withoutResult: number; passed: number }>();
  readonly failures: string[] = [];
  readonly leftOut: string[] = [];
  passed = 0;
  ended = false;
  release = "";

  constructor(label: string) {
    this.#label = label;
  }

  get minutes(): number {
    return (Date.now() - this.#start) / 60_000;
  }

  say(text: string): void {
    console.log(`${this.#label} ${this.minutes.toFixed(1).padStart(5)} min: ${text}`);
  }

  take(event: GuestEvent): void {
    switch (event.event) {
      case "up":
        this.release = event.release;
        this.say(`Linux ${event.release} is up after ${event.seconds} s`);
        break;
      case "start":
        this.say(`${event.what} in ${event.seconds} s`);
        break;
      case "broken":
        this.#failed(event.message);
        break;
      case "tier":
        this.say(`tier ${event.tier}`);
        break;
      case "files":
        for (const file of event.files) this.#waiting.add(file);
        break;
      case "file":
        this.#waiting.delete(event.file);
        this.#open.set(event.file, { withoutResult: event.tests, passed: 0 });
        break;
      case "test":
        this.#count(event);
        if (event.milliseconds > LONG_MS)
          this.say(`${event.file}: ${event.name} took ${(event.milliseconds / 1000).toFixed(0)} s`);
        if (event.state === "skipped") this.leftOut.push(`${event.file}: ${event.name}`);
        else if (event.state === "failed")
          this.#failed(`${event.file}: ${event.name} (${event.milliseconds} ms): ${event.message}`);
        break;
      case "file-end":
        this.#fileEnded(event);
        break;
      case "tier-end":
        if (event.code !== 0 && this.failures.length === 0) this.#failed(`tier ${event.tier}: exit code ${event.code}`);
        break;
      case "end":
        this.ended = true;
        break;
    }
  }

  #count({ file, state }: Extract<GuestEvent, { event: "test" }>): void {
    const passed = state === "passed" ? 1 : 0;
    this.passed += passed;
    const counts = this.#open.get(file);
    if (counts === undefined) return;
    counts.withoutResult -= 1;
    counts.passed += passed;
  }

  #fileEnded({ file, passed, message, milliseconds }: Extract<GuestEvent, { event: "file-end" }>): void {
    const told = this.#open.get(file) ?? { withoutResult: 0, passed };
    const untold = passed - told.passed;
    this.passed += untold;
    this.#waiting.delete(file);
    this.#open.delete(file);
    const missing = told.withoutResult - untold;
    if (message !== "") this.#failed(`${file}: ${message}`);
    else if (missing > 0) this.#failed(`${file}: ${missing} tests have no result`);
    this.say(`${file} (${(milliseconds / 1000).toFixed(0)} s); ${this.passed} passed, ${this.failures.length} failed`);
  }

  #failed(what: string): void {
    this.failures.push(what);
    this.say(`FAILED ${what}`);
  }

  /** `failure`: an error of the guest as a whole. */
  finish(failure: string | undefined): void {
    // Everything has been reported: User Mode Linux was seen to fault in its own poweroff, in an interrupt after "System halted".
    if (failure !== undefined && this.ended) this.say(`as it was switched off, the guest ${failure}`);
    else if (failure !== undefined) this.#failed(`the guest ${failure}`);
    else if (!this.ended) this.#failed("the guest ended before its tests did");
    for (const [file, { withoutResult }] of this.#open) {
      if (withoutResult > 0) this.#failed(`${file}: ${withoutResult} tests have no result`);
    }
    for (const file of this.#waiting) this.#failed(`${file}: not begun`);
  }
}

async function testKernel(kernel: DebianKernel, unpacked: UnpackedKernel, userland: string): Promise<Result> {
  const own = path.join(kernelCache, `${kernel.suite}-${architecture}-guest`);
  mkdirSync(own, { recursive: true });
  const initramfs = path.join(own, "initramfs");
  const consoleFile = path.join(own, "console.log");
  const job = path.join(own, "job.cpio");
  const orders = {
    EVENTS: isArm64 ? "/dev/ttyS0" : "/dev/ttyS1",
    SLOW: String(SLOW[unpacked.machine]),
    TIERS: tiers.replaceAll(",", " "),
    FILTERS: files.join(" "),
    EXCLUDED: KERNEL_FREE.join(" "),
    WITHOUT: options.without,
  };
  writeJob(job, unpacked, orders, options.without.split(","));
  writeFileSync(initramfs, Buffer.concat([readFileSync(userland), readFileSync(job)]));
  const progress = new Progress(kernel.name.padEnd(6));
  progress.say(`booting ${unpacked.release}; its console goes to ${path.relative(root, consoleFile)}`);
  const failure = await runGuest({
    kernel: unpacked,
    initramfs,
    console: consoleFile,
    limitMs: Number(options.minutes) * 60_000,
    ...(options.monitor === undefined ? {} : { monitor: path.resolve(options.monitor) }),
    onEvent: (event) => progress.take(event),
  });
  progress.finish(failure);
  const { passed, failures, leftOut, minutes, release } = progress;
  return { kernel, release: release === "" ? unpacked.release : release, passed, failures, leftOut, minutes };
}

function summarize(results: readonly Result[]): void {
  console.log("\n=== summary");
  for (const { kernel, release, passed, failures, leftOut, minutes } of results) {
    const counts = `${passed} passed, ${failures.length} failed, ${leftOut.length} skipped`;
    console.log(`${kernel.name.padEnd(6)} ${release}: ${counts} in ${minutes.toFixed(1)} min`);
    for (const each of failures) console.log(`  failed: ${each.split("\n")[0]}`);
    for (const each of leftOut) console.log(`  skipped: ${each}`);
  }
  const sum = (count: (result: Result) => number): number => results.reduce((total, each) => total + count(each), 0);
  const failed = sum(({ failures }) => failures.length);
  console.log(
    `${sum(({ passed }) => passed)} passed, ${failed} failed, ${sum(({ leftOut }) => leftOut.length)} skipped`,
  );
  process.exitCode = failed === 0 ? 0 : 1;
}

async function main(): Promise<void> {
  const selected = selectKernels();
  const machines = new Set(selected.map(({ machine }) => machine));
  checkMachine(machines);
  mkdirSync(kernelCache, { recursive: true });
  const userland = path.join(kernelCache, `userland-${architecture}.cpio`);
  const kernelFree = KERNEL_FREE.map((pattern) => globSync(pattern, { cwd: root }));
  for (const [i, files] of kernelFree.entries()) if (files.length === 0) fail(`no file is ${KERNEL_FREE[i]} any more`);
  const program = path.join(kernelCache, "program");
  rmSync(program, { recursive: true, force: true });
  mustRun(process.execPath, ["deploy/image/bundle.mjs", program], { cwd: root });
  writeUserland(userland, isArm64 ? arm64Binaries() : ownBinaries(), program);
  console.log(`not run, because they use no kernel: ${kernelFree.flat().join(", ")}`);
  console.log(`userland: ${(statSync(userland).size / 2 ** 20).toFixed(0)} MiB`);
  const results: Result[] = [];
  // The running guest is killed by its own handlers: its output so far is in the summary.
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stop.abort());
  const waiting: [DebianKernel, UnpackedKernel][] = [];
  for (const kernel of selected) {
    const say = (text: string): void => console.log(`${kernel.name.padEnd(6)} ${text}`);
    waiting.push([kernel, kernel.machine === "uml" ? await buildUml(kernel, say) : fetchKernel(kernel, architecture)]);
  }
  const next = async (): Promise<void> => {
    const first = waiting.shift();
    if (first === undefined || stop.signal.aborted) return;
    results.push(await testKernel(...first, userland));
    await next();
  };
  // One emulated guest uses two processors.
  const guests = Number(options.guests ?? (machines.has("qemu") ? 1 : 2));
  await Promise.all(Array.from({ length: guests }, next));
  summarize(results);
}

await main();
