/**
 * Packages of other Debian releases, unpacked under build/. Nothing is installed. apt uses directories of its own, so
 * the machine's package lists do not change.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";

const keyrings = ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
/** An unpacked suite is fetched again after this time, because the newest suite changes. */
const maxAgeMs = 7 * 24 * 3600_000;

/** Runs a program to its end and returns its output. Throws with the program's own message unless it exits with 0. */
export function mustRun(
  command: string,
  args: readonly string[],
  options: { readonly env?: Readonly<Record<string, string>>; readonly cwd?: string } = {},
): string {
  const result = spawnSync(command, args, {
    encoding: "utf8",
    maxBuffer: 1 << 26,
    ...options,
    env: { ...process.env, ...options.env },
  });
  if (result.status === 0) return result.stdout;
  const reason = result.error?.message ?? `${result.stdout}${result.stderr}`.trim();
  throw new Error(`${command} ${args.join(" ")}: ${reason}`);
}

/**
 * The machine's Debian archive, as configured for its own apt. The environment variable DEBIAN_MIRROR names one if apt
 * has none (another distribution).
 */
export function mirror(): string {
  const configured = process.env["DEBIAN_MIRROR"];
  if (configured !== undefined && configured !== "") return configured;
  const targets = mustRun("apt-get", ["indextargets", "--format", "$(LABEL) $(SITE)", "Created-By: Packages"]);
  const site = targets
    .split("\n")
    .find((line) => line.startsWith("Debian "))
    ?.slice("Debian ".length);
  if (site === undefined) throw new Error("apt has no Debian mirror here. Set DEBIAN_MIRROR to the address of one.");
  return site;
}

function writeAptConfiguration(directory: string, suite: string, architecture: string | undefined): string {
  const keyring = keyrings.find((file) => existsSync(file));
  if (keyring === undefined)
    throw new Error("Debian's archive keys are missing. Run `apt-get install debian-archive-keyring`.");
  mkdirSync(path.join(directory, "lists", "partial"), { recursive: true });
  mkdirSync(path.join(directory, "cache", "archives", "partial"), { recursive: true });
  // An empty status file: with nothing installed, apt downloads every dependency, too.
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
    // An archived suite's index has expired; its contents are signed all the same.
    "Acquire::Check-Valid-Until": "false",
    "APT::Sandbox::User": "",
    ...(architecture !== undefined && { "APT::Architecture": architecture, "APT::Architectures": architecture }),
  };
  const file = path.join(directory, "apt.conf");
  const lines = Object.entries(settings).map(([name, value]) => `${name} "${value}";\n`);
  writeFileSync(file, lines.join(""));
  return file;
}

/** One suite's archive, with a separate apt configuration. */
export class Archive {
  readonly #env: Readonly<Record<string, string>>;
  readonly #archives: string;

  /** `architecture` is Debian's name ("arm64"); absent for the machine's own. */
  constructor(directory: string, suite: string, architecture?: string) {
    this.#env = { APT_CONFIG: writeAptConfiguration(directory, suite, architecture) };
    this.#archives = path.join(directory, "cache", "archives");
    mustRun("apt-get", ["-q", "update"], { env: this.#env });
  }

  /** Returns the direct dependencies of a package, with all alternatives. */
  dependencies(name: string): readonly string[] {
    const text = mustRun("apt-cache", ["depends", "--no-recommends", "--no-suggests", name], { env: this.#env });
    return [...text.matchAll(/^ [ |]Depends: (\S+)$/gm)].map(([, dependency = ""]) => dependency);
  }

  /** Downloads only these packages. */
  download(names: readonly string[]): void {
    mustRun("apt-get", ["-q", "download", ...names], { env: this.#env, cwd: this.#archives });
  }

  /** Downloads a package with everything that it needs to run, libc included. */
  downloadWithDependencies(name: string): void {
    const args = ["-q", "-y", "--no-install-recommends", "--download-only", "install", name];
    mustRun("apt-get", args, { env: this.#env });
  }

  /** Unpacks the downloaded packages, and writes their descriptions to /var/lib/dpkg/status.d, as distroless images do. */
  unpack(root: string): void {
    const descriptions = path.join(root, "var/lib/dpkg/status.d");
    for (const name of readdirSync(this.#archives).filter((file) => file.endsWith(".deb"))) {
      const file = path.join(this.#archives, name);
      mustRun("dpkg-deb", ["-x", file, root]);
      mkdirSync(descriptions, { recursive: true });
      writeFileSync(path.join(descriptions, name.split("_")[0]), mustRun("dpkg-deb", ["--field", file]));
    }
  }
}

/**
 * Packages of a suite, unpacked into `directory`/root unless that was done within a week. `download` selects the
 * packages. Needs the network; throws with apt's message.
 */
export function unpacked(
  directory: string,
  suite: string,
  what: string,
  download: (archive: Archive) => void,
  architecture?: string,
): string {
  const root = path.join(directory, "root");
  const complete = path.join(directory, "complete");
  const age = Date.now() - (statSync(complete, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  if (age < maxAgeMs) return root;
  console.log(`fetching ${what} of Debian ${suite}`);
  rmSync(directory, { recursive: true, force: true });
  const archive = new Archive(directory, suite, architecture);
  download(archive);
  archive.unpack(root);
  for (const name of ["lists", "cache"]) rmSync(path.join(directory, name), { recursive: true, force: true });
  writeFileSync(complete, "");
  return root;
}
