#!/usr/bin/env node
/**
 * Runs a command in new network and mount namespaces, so that its changes to links, addresses, nf_tables or `ip netns`
 * cannot reach the machine: `node test/lab/enter.mjs -- command arguments…`.
 *
 * As root this is `unshare -n -m`; otherwise, if user namespaces are allowed, `unshare -Urnm`. The exit code is the
 * command's. Everything made inside disappears with the last process. Plain JavaScript for Node >= 18 without
 * dependencies, so it also runs before anything is installed.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";

const SELF = fileURLToPath(import.meta.url);
const INSIDE = "--inside";

/** Returns the flags of unshare(1) that work here, or the reason why none does. */
function chooseFlags() {
  const attempts = [];
  if (process.getuid?.() === 0) attempts.push(["-n", "-m", "--propagation", "private"]);
  attempts.push(["-U", "-r", "-n", "-m", "--propagation", "private"]);
  let reason = "";
  for (const flags of attempts) {
    const tried = spawnSync("unshare", [...flags, "--", "true"], { encoding: "utf8" });
    if (tried.status === 0) return { flags };
    reason = tried.error ? tried.error.message : tried.stderr.trim();
  }
  return { reason };
}

function explain(reason, command) {
  const again = [process.execPath, SELF, "--", ...command].join(" ");
  const lines = [`enter: cannot make a network namespace: ${reason}`];
  if (/ENOENT/.test(reason)) {
    lines.push("unshare(1) is missing. Install it with:", "  sudo apt-get install -y util-linux iproute2");
  } else if (process.getuid?.() === 0) {
    lines.push(
      "This root has no CAP_SYS_ADMIN (a container without privileges?) and user namespaces are off.",
      "Where it is a container, start it with --privileged; or allow user namespaces on the host:",
      "  sysctl -w user.max_user_namespaces=15000",
    );
  } else {
    lines.push("User namespaces are off for this user. Either run it as root:", `  sudo ${again}`);
    if (existsSync("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")) {
      lines.push("or allow them:", "  sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    } else if (existsSync("/proc/sys/kernel/unprivileged_userns_clone")) {
      lines.push("or allow them:", "  sudo sysctl -w kernel.unprivileged_userns_clone=1");
    } else {
      lines.push("or allow them:", "  sudo sysctl -w user.max_user_namespaces=15000");
    }
  }
  process.stderr.write(lines.join("\n") + "\n");
}

function must(program, args) {
  const done = spawnSync(program, args, { encoding: "utf8" });
  if (done.status === 0) return;
  const reason = done.error ? done.error.message : done.stderr.trim();
  process.stderr.write(`enter: ${program} ${args.join(" ")}: ${reason}\n`);
  if (program === "ip" && done.error) process.stderr.write("  sudo apt-get install -y iproute2\n");
  process.exit(1);
}

/** `ip netns` keeps its names in /run/netns: mount a tmpfs there, or over /run if that directory does not exist. */
function prepare() {
  if (existsSync("/run/netns")) {
    must("mount", ["-t", "tmpfs", "lab", "/run/netns"]);
  } else {
    must("mount", ["-t", "tmpfs", "lab", "/run"]);
    mkdirSync("/run/netns");
  }
  must("ip", ["link", "set", "lo", "up"]);
}

/** Runs a program to its end, forwards signals, and ends as the program ended. */
function become(program, args, env) {
  const child = spawn(program, args, { stdio: "inherit", env });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    process.stderr.write(`enter: ${program}: ${error.message}\n`);
    process.exitCode = 127;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
  });
}

function main(argv) {
  const inside = argv[0] === INSIDE;
  const rest = inside ? argv.slice(1) : argv;
  const command = rest[0] === "--" ? rest.slice(1) : rest;
  if (command.length === 0) {
    process.stderr.write("usage: node test/lab/enter.mjs -- command arguments…\n");
    process.exitCode = 2;
    return;
  }
  if (inside) {
    prepare();
    become(command[0], command.slice(1), { ...process.env, NFT_PROXIER_LAB: "1" });
    return;
  }
  const { flags, reason } = chooseFlags();
  if (flags === undefined) {
    explain(reason, command);
    process.exitCode = 1;
    return;
  }
  become("unshare", [...flags, "--", process.execPath, SELF, INSIDE, "--", ...command], process.env);
}

main(process.argv.slice(2));
