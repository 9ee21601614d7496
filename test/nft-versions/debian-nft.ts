/**
 * The nft of other Debian releases, side by side with the machine's: each suite's nftables package with everything that
 * it depends on, its libc and dynamic loader included, downloaded by apt and unpacked under build/nft/. Nothing is
 * installed, and apt works on directories of its own, so the machine's package lists stay as they are.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";

/** A suite of Debian's archive; `version` is what its nftables is, where the suite is old enough not to move. */
export interface Suite {
  readonly name: string;
  readonly version?: string;
}

/** The oldest nft in use, the ones of later stable releases, and the newest there is. */
export const suites: readonly Suite[] = [
  { name: "bullseye", version: "0.9.8" },
  { name: "bookworm", version: "1.0.6" },
  { name: "trixie", version: "1.1.3" },
  { name: "sid" },
];

const cache = path.resolve(import.meta.dirname, "..", "..", "build", "nft");
const keyrings = ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
/** After this long an unpacked suite is fetched again: the newest does not stay the newest. */
const maxAgeMs = 7 * 24 * 3600_000;

function run(command: string, args: readonly string[], env: Record<string, string> = {}): string {
  const result = spawnSync(command, args, { encoding: "utf8", maxBuffer: 1 << 26, env: { ...process.env, ...env } });
  if (result.status === 0) return result.stdout;
  const reason = result.error?.message ?? `${result.stdout}${result.stderr}`.trim();
  throw new Error(`${command} ${args.join(" ")}: ${reason}`);
}

/**
 * Where this machine gets Debian's archive from, as its own apt is configured; the environment variable DEBIAN_MIRROR
 * names one where apt has none (another distribution).
 */
function mirror(): string {
  const configured = process.env["DEBIAN_MIRROR"];
  if (configured !== undefined && configured !== "") return configured;
  const lines = run("apt-get", ["indextargets", "--format", "$(LABEL) $(SITE)", "Created-By: Packages"]).split("\n");
  const site = lines.find((line) => line.startsWith("Debian "))?.slice("Debian ".length);
  if (site === undefined) throw new Error("apt has no Debian mirror here; set DEBIAN_MIRROR to the address of one");
  return site;
}

function writeAptConfiguration(directory: string, suite: string): string {
  const keyring = keyrings.find((file) => existsSync(file));
  if (keyring === undefined)
    throw new Error("Debian's archive keys are missing: apt-get install debian-archive-keyring");
  mkdirSync(path.join(directory, "lists", "partial"), { recursive: true });
  mkdirSync(path.join(directory, "cache", "archives", "partial"), { recursive: true });
  // An empty status file: as nothing is installed, apt downloads every dependency too.
  writeFileSync(path.join(directory, "status"), "");
  const source = [`Types: deb`, `URIs: ${mirror()}`, `Suites: ${suite}`, `Components: main`, `Signed-By: ${keyring}`];
  writeFileSync(path.join(directory, "suite.sources"), `${source.join("\n")}\n`);
  const settings = {
    "Dir::Etc::SourceList": path.join(directory, "suite.sources"),
    "Dir::Etc::SourceParts": "-",
    "Dir::State": directory,
    "Dir::State::Lists": path.join(directory, "lists"),
    "Dir::State::Status": path.join(directory, "status"),
    "Dir::Cache": path.join(directory, "cache"),
    "Acquire::Languages": "none",
    // An archived suite's index is past its date; what it holds is signed all the same.
    "Acquire::Check-Valid-Until": "false",
    "APT::Sandbox::User": "",
  };
  const file = path.join(directory, "apt.conf");
  writeFileSync(
    file,
    Object.entries(settings)
      .map(([name, value]) => `${name} "${value}";\n`)
      .join(""),
  );
  return file;
}

/** Downloads and unpacks a suite's nft unless that was done lately. Needs the network; throws with apt's words. */
export function fetchNft(suite: Suite): void {
  const directory = path.join(cache, suite.name);
  const complete = path.join(directory, "complete");
  const age = Date.now() - (statSync(complete, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  if (age < maxAgeMs) return;
  console.log(`fetching nftables of Debian ${suite.name}`);
  rmSync(directory, { recursive: true, force: true });
  const env = { APT_CONFIG: writeAptConfiguration(directory, suite.name) };
  run("apt-get", ["-q", "update"], env);
  run("apt-get", ["-q", "-y", "--no-install-recommends", "--download-only", "install", "nftables"], env);
  const archives = path.join(directory, "cache", "archives");
  for (const file of readdirSync(archives).filter((name) => name.endsWith(".deb"))) {
    run("dpkg-deb", ["-x", path.join(archives, file), path.join(directory, "root")]);
  }
  for (const name of ["lists", "cache"]) rmSync(path.join(directory, name), { recursive: true, force: true });
  writeFileSync(complete, "");
}

/** The command line that runs a fetched nft: with its own loader and libraries, whatever the machine's libc is. */
export function nftCommand(suite: Suite): readonly string[] {
  const root = path.join(cache, suite.name, "root");
  const triplet = process.arch === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
  const directories = [`lib/${triplet}`, `usr/lib/${triplet}`].map((directory) => path.join(root, directory));
  const loader = directories
    .filter((directory) => existsSync(directory))
    .flatMap((directory) => readdirSync(directory).map((name) => path.join(directory, name)))
    .find((file) => /\/ld-linux-.*\.so\.\d+$/.test(file));
  const nft = path.join(root, "usr/sbin/nft");
  if (loader === undefined || !existsSync(nft)) throw new Error(`the nft of ${suite.name} is not unpacked`);
  return [loader, "--library-path", directories.join(":"), nft];
}
