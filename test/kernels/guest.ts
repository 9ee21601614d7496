/** One guest: qemu with a kernel and an initramfs, what it tells while it runs, and its end in any case. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

/** What a guest tells, a JSON object per line: init.sh about itself, reporter.ts about vitest's files and tests. */
export type GuestEvent =
  | { readonly event: "up"; readonly release: string; readonly seconds: number }
  | { readonly event: "broken"; readonly message: string }
  | { readonly event: "tier"; readonly tier: string }
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
      /** What failed outside of the file's tests. */
      readonly message: string;
      readonly milliseconds: number;
    }
  | { readonly event: "tier-end"; readonly tier: string; readonly code: number }
  | { readonly event: "end" };

export interface GuestOptions {
  readonly image: string;
  readonly initramfs: string;
  /** Where the console's text goes. */
  readonly console: string;
  readonly limitMs: number;
  /** Where qemu's monitor listens (a Unix socket's path), so that `stop` and `cont` pause the guest; default: nowhere. */
  readonly monitor?: string;
  readonly onEvent: (event: GuestEvent) => void;
}

const MEMORY = "3G";
/**
 * Without cmpxchg16b: under qemu 7.2, Linux 6.12 died in it while it booted, with a pointer in place of the flags. Without
 * erms, as emulation copies byte by byte where a processor would copy at once (a sixth of all time).
 */
const PROCESSOR = "max,-cx16,-erms";
const PROCESSORS = 2;
/**
 * The time comes from the HPET: on a busy machine 6.12 took the processors' counters for 122 MHz instead of 2300, and for
 * minutes its seconds were a twentieth of one. Nor is the timer's interrupt tried out: on a busy machine 6.1 saw none within
 * the moment that it waits, and panicked ("IO-APIC + timer doesn't work").
 */
const CLOCK = "tsc=unstable no_timer_check";

/**
 * Boots a guest and waits for its end. Resolves with what went wrong outside of it: qemu's own failure, or the limit, after
 * which it is killed. Emulation only: nothing here needs rights, and a guest under KVM was seen to hang.
 */
export function runGuest(options: GuestOptions): Promise<string | undefined> {
  const monitor = options.monitor === undefined ? "none" : `unix:${options.monitor},server=on,wait=off`;
  const args = [
    ...["-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-smp", String(PROCESSORS), "-m", MEMORY],
    ...["-nodefaults", "-display", "none", "-monitor", monitor, "-no-reboot"],
    // The guest's time stands still while it is paused.
    ...["-rtc", "clock=vm"],
    ...["-serial", `file:${options.console}`, "-serial", "stdio"],
    ...["-kernel", options.image, "-initrd", options.initramfs],
    // There is nothing to leak to: what keeps processors from guessing costs emulated ones the most.
    // A panic ends the guest (with -no-reboot); getrandom(2) must not wait for noise that an emulated machine never makes.
    ...["-append", `console=ttyS0 panic=-1 random.trust_cpu=on net.ifnames=0 ${CLOCK} mitigations=off`],
  ];
  return new Promise((resolve) => {
    // Nice: hours of emulation must not be in the way of who works here.
    const child = spawn("nice", ["-n", "19", "qemu-system-x86_64", ...args], { stdio: ["ignore", "pipe", "pipe"] });
    let late = false;
    let said = "";
    const kill = (): void => void child.kill("SIGKILL");
    const timer = setTimeout(() => {
      late = true;
      kill();
    }, options.limitMs);
    const signals = ["SIGINT", "SIGTERM", "exit"] as const;
    for (const signal of signals) process.once(signal, kill);
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const event = parseEvent(line);
      if (event !== undefined) options.onEvent(event);
    });
    const settle = (failure: string | undefined): void => {
      clearTimeout(timer);
      for (const signal of signals) process.off(signal, kill);
      resolve(failure);
    };
    child.on("error", (error) => settle(`qemu could not be started: ${error.message}`));
    child.on("close", (code, signal) => {
      if (late) settle(`was still running after ${options.limitMs / 60_000} minutes, and was killed`);
      else if (code === 0) settle(undefined);
      else settle(`qemu ended with ${signal ?? `code ${code}`}: ${said.trim()}`);
    });
  });
}

/** The serial line can carry noise when the guest's kernel starts using it. */
function parseEvent(line: string): GuestEvent | undefined {
  const start = line.indexOf('{"event":');
  if (start === -1) return undefined;
  try {
    return JSON.parse(line.slice(start)) as GuestEvent;
  } catch {
    return undefined;
  }
}
