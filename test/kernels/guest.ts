/** One guest: a kernel and an initramfs, in qemu or as a program, its output while it runs, and its end in any case. */
import { spawn } from "node:child_process";
import { closeSync, openSync, statfsSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import type { UnpackedKernel } from "./debian-kernels.ts";

/** A guest's output, a JSON object per line: init.sh reports on itself, reporter.ts on vitest's files and tests. */
export type GuestEvent =
  | { readonly event: "up"; readonly release: string; readonly seconds: number }
  | { readonly event: "start"; readonly what: string; readonly seconds: number }
  | { readonly event: "broken"; readonly message: string }
  | { readonly event: "tier"; readonly tier: string }
  | { readonly event: "files"; readonly files: readonly string[] }
  | { readonly event: "file"; readonly file: string; readonly tests: number }
  | {
      readonly event: "test";
      readonly file: string;
      readonly name: string;
      readonly state: "passed" | "failed" | "skipped";
      readonly message: string;
      readonly milliseconds: number;
    }
  | {
      readonly event: "file-end";
      readonly file: string;
      readonly state: string;
      /** Number of its passed tests. The line of a test can be damaged, because the kernel also writes to the serial line. */
      readonly passed: number;
      /** Errors outside the file's tests. */
      readonly message: string;
      readonly milliseconds: number;
    }
  | { readonly event: "tier-end"; readonly tier: string; readonly code: number }
  | { readonly event: "end" };

export interface GuestOptions {
  readonly kernel: UnpackedKernel;
  readonly initramfs: string;
  /** File for the console's text. */
  readonly console: string;
  readonly limitMs: number;
  /** Path of the Unix socket for qemu's monitor, where `stop` and `cont` pause and resume the guest. Default: none. */
  readonly monitor?: string;
  readonly onEvent: (event: GuestEvent) => void;
}

const MEMORY_GIB = 3;
const PROCESSORS = 2;
/**
 * Without cmpxchg16b: under qemu 7.2, Linux 6.12 crashed in it during boot, with a pointer in place of the flags. Without erms, because
 * emulation copies byte by byte where a processor would copy at once (a sixth of all time).
 */
const AMD64 = ["-cpu", "max,-cx16,-erms"];
/**
 * Use the HPET for time: on a busy machine, 6.12 measured the processors' counters as 122 MHz instead of 2300. For minutes, its seconds
 * were a twentieth of real ones. Do not test the timer's interrupt: on a busy machine, 6.1 saw none within the moment that it waits, and
 * panicked ("IO-APIC + timer doesn't work").
 */
const CLOCK = "tsc=unstable no_timer_check";

/** The processor of Graviton2 and Altra. */
const ARM64 = ["-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"];

/** A program that is a guest. Its file descriptor 3 is the second serial line, and its output is its console. */
interface Program {
  readonly command: string;
  /** Hours of emulation must not disturb other work on the machine; minutes may, and a guest that starves fails by its time limit. */
  readonly niceness: number;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Emulates the processor: emulation needs no privileges, and a guest under KVM once hung. */
function emulated({ kernel, initramfs, monitor }: GuestOptions): Program {
  const arm64 = kernel.architecture === "arm64";
  // The events' serial line is ttyS1 on a PC, which has two, and ttyS0 on arm64, where the console has another driver.
  const serial = arm64 ? ["-device", "pci-serial,chardev=events"] : ["-serial", "chardev:events"];
  const boot = arm64 ? "console=ttyAMA0" : `console=ttyS0 ${CLOCK}`;
  const args = [
    ...["-accel", "tcg,thread=multi", ...(arm64 ? ARM64 : AMD64), "-smp", String(PROCESSORS), "-m", `${MEMORY_GIB}G`],
    ...["-nodefaults", "-display", "none", "-no-reboot"],
    ...["-monitor", monitor === undefined ? "none" : `unix:${monitor},server=on,wait=off`],
    // The guest's clock stops while it is paused.
    ...["-rtc", "clock=vm"],
    ...["-serial", "stdio", "-chardev", "socket,id=events,fd=3", ...serial],
    ...["-kernel", kernel.image, "-initrd", initramfs],
    // There is nothing to leak: disable the mitigations of speculation, which cost emulated processors most. A panic ends the guest (with
    // -no-reboot); getrandom(2) must not wait for noise that an emulated machine never makes.
    ...["-append", `${boot} panic=-1 random.trust_cpu=on net.ifnames=0 mitigations=off`],
  ];
  return { command: arm64 ? "qemu-system-aarch64" : "qemu-system-x86_64", niceness: 15, args };
}

/**
 * The kernel as a program, with one processor. Since 6.16 it can catch its programs' system calls with a seccomp filter, which takes far
 * less time than tracing them.
 */
function userMode({ kernel, initramfs, console }: GuestOptions): Program {
  const directory = path.dirname(console);
  const { bavail, bsize } = statfsSync("/dev/shm");
  // Its memory is a file, which it deletes at once. Containers have a small /dev/shm, and a guest dies if that is full.
  const memory = bavail * bsize > 2 * MEMORY_GIB * 2 ** 30 ? "/dev/shm" : directory;
  const serial = ["ssl=null", "ssl0=null,fd:1", "ssl1=null,fd:3", "con=null", "console=ttyS0"];
  const args = [`mem=${MEMORY_GIB}G`, `initrd=${initramfs}`, "rdinit=/init", "panic=-1", "seccomp=auto", ...serial];
  return {
    command: kernel.image,
    niceness: 5,
    args: [...args, `uml_dir=${directory}`, "umid=guest"],
    env: { TMPDIR: memory },
  };
}

/**
 * Boots a guest and waits for its end. Resolves with an error outside the guest: the program's own failure, or the time limit, after which
 * it is killed.
 */
export function runGuest(options: GuestOptions): Promise<string | undefined> {
  const { command, niceness, args, env } = options.kernel.machine === "uml" ? userMode(options) : emulated(options);
  return new Promise((resolve) => {
    const output = openSync(options.console, "w");
    // A separate process group, which includes its programs.
    const child = spawn("nice", ["-n", String(niceness), command, ...args], {
      stdio: ["ignore", output, output, "pipe"],
      detached: true,
      env: { ...process.env, ...env },
    });
    closeSync(output);
    let late = false;
    const kill = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      } catch {
        // It has just ended.
      }
    };
    const timer = setTimeout(() => {
      late = true;
      kill();
    }, options.limitMs);
    const signals = ["SIGINT", "SIGTERM", "exit"] as const;
    for (const signal of signals) process.once(signal, kill);
    createInterface({ input: child.stdio[3] as Readable }).on("line", (line) => {
      const event = parseEvent(line);
      if (event !== undefined) options.onEvent(event);
    });
    const settle = (failure: string | undefined): void => {
      clearTimeout(timer);
      for (const signal of signals) process.off(signal, kill);
      resolve(failure);
    };
    child.on("error", (error) => settle(`could not be started: ${error.message}`));
    child.on("close", (code, signal) => {
      kill();
      if (late) settle(`was still running after ${options.limitMs / 60_000} minutes, and was killed`);
      else if (code === 0) settle(undefined);
      else settle(`ended with ${signal ?? `code ${code}`}; its console may say why: ${options.console}`);
    });
  });
}

/** Ignores lines that the kernel has damaged. */
function parseEvent(line: string): GuestEvent | undefined {
  const start = line.indexOf('{"event":');
  if (start === -1) return undefined;
  try {
    return JSON.parse(line.slice(start)) as GuestEvent;
  } catch {
    return undefined;
  }
}
