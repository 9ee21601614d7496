/** Debian's iptables, unpacked under build/ and not installed: both kinds, for kube-proxy's iptables mode. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";

import { unpacked } from "../../lab/debian.ts";

/** The tables that it writes: those of nf_tables, or those of the older iptables. */
export type Backend = "nft" | "legacy";
const BACKENDS: readonly Backend[] = ["nft", "legacy"];

const SUITE = "bookworm";
const directory = path.resolve(import.meta.dirname, "../../../build/iptables");
const commands = (backend: Backend): string => path.join(directory, backend);

/**
 * Downloads and unpacks it unless that was done within a week, and creates a directory of commands for each kind. Needs the network; throws
 * with apt's message.
 */
export function fetchIptables(): void {
  const root = unpacked(directory, SUITE, "iptables", (archive) => archive.downloadWithDependencies("iptables"));
  for (const backend of BACKENDS) writeCommands(root, backend);
}

/** Returns the directory to prepend to PATH. Throws if `fetchIptables` was not called. */
export function iptablesPath(backend: Backend): string {
  if (!existsSync(path.join(commands(backend), "iptables")))
    throw new Error("iptables was not unpacked. Run `npm run test:kube-proxy`.");
  return commands(backend);
}

/** Each command uses the package's own loader, libraries and extensions, not this machine's. */
function writeCommands(root: string, backend: Backend): void {
  const triplet = process.arch === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
  const libraries = [`lib/${triplet}`, `usr/lib/${triplet}`].map((name) => path.join(root, name));
  const loader = libraries
    .filter((each) => existsSync(each))
    .flatMap((each) => readdirSync(each).map((name) => path.join(each, name)))
    .find((file) => /\/ld-linux-.*\.so\.\d+$/.test(file));
  if (loader === undefined) throw new Error(`there is no loader under ${root}`);
  const program = path.join(root, "usr/sbin", `xtables-${backend}-multi`);
  mkdirSync(commands(backend), { recursive: true });
  for (const name of ["iptables", "ip6tables"].flatMap((each) => [each, `${each}-save`, `${each}-restore`])) {
    const lines = [
      "#!/bin/sh",
      `export XTABLES_LIBDIR=${path.join(root, `usr/lib/${triplet}/xtables`)}`,
      `exec ${loader} --library-path ${libraries.join(":")} --argv0 ${name} ${program} "$@"`,
      "",
    ];
    writeFileSync(path.join(commands(backend), name), lines.join("\n"), { mode: 0o755 });
  }
}
