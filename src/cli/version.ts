import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const ROOT = new URL("../../", import.meta.url);

function manifest(): { readonly version: string; readonly gitHead?: string } {
  return JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8")) as ReturnType<typeof manifest>;
}

/** Returns the program's version from package.json. */
export function programVersion(): string {
  return manifest().version;
}

/**
 * Returns the commit that the program is built from, with "-dirty" if there were changes on top of it. The image's build and npm write it to
 * package.json. In a checkout, git provides it. Returns undefined if neither knows it.
 */
export async function programCommit(): Promise<string | undefined> {
  const { gitHead } = manifest();
  if (gitHead !== undefined || !existsSync(new URL(".git", ROOT))) return gitHead;
  const { spawnSync } = await import("node:child_process");
  const args = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"];
  const { status, stdout } = spawnSync("git", args, { cwd: fileURLToPath(ROOT), encoding: "utf8" });
  return status === 0 ? stdout.trim() : undefined;
}

const GO_ARCHITECTURE: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };

/** Returns the text for `--version=raw`: the fields of component-base's version.Info, as Go prints a struct. */
function rawVersion(version: string, commit = ""): string {
  const [major = "", minor = ""] = version.split(".");
  const [hash = "", dirty] = commit.split("-");
  const fields = {
    Major: major,
    Minor: minor,
    GitVersion: `v${version}`,
    GitCommit: hash,
    GitTreeState: dirty ?? (hash === "" ? "" : "clean"),
    BuildDate: "",
    GoVersion: "",
    Compiler: `node ${process.version}`,
    Platform: `${process.platform}/${GO_ARCHITECTURE[process.arch] ?? process.arch}`,
  };
  const pairs = Object.entries(fields).map(([name, value]) => `${name}:${JSON.stringify(value)}`);
  return `version.Info{${pairs.join(", ")}}`;
}

/** Prints the version and its commit, if known, to stdout. `raw` prints all fields. */
export async function printVersion(raw: boolean): Promise<void> {
  const version = programVersion();
  const commit = await programCommit();
  const short = commit?.replace(/^([0-9a-f]{12})[0-9a-f]*/, "$1");
  const text = short === undefined ? version : `${version} (commit ${short})`;
  process.stdout.write(`${raw ? rawVersion(version, commit) : text}\n`);
}
