import { readFileSync } from "node:fs";

/** The program's version, as package.json says. */
export function programVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return String((manifest as { version: unknown }).version);
}

const GO_ARCHITECTURE: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };

/** What `--version=raw` prints: the fields of component-base's version.Info, as Go prints a struct. */
export function rawVersion(): string {
  const version = programVersion();
  const [major = "", minor = ""] = version.split(".");
  const platform = `${process.platform}/${GO_ARCHITECTURE[process.arch] ?? process.arch}`;
  const fields = {
    Major: major,
    Minor: minor,
    GitVersion: `v${version}`,
    GitCommit: "",
    GitTreeState: "",
    BuildDate: "",
    GoVersion: "",
    Compiler: `node ${process.version}`,
    Platform: platform,
  };
  const pairs = Object.entries(fields).map(([name, value]) => `${name}:${JSON.stringify(value)}`);
  return `version.Info{${pairs.join(", ")}}`;
}

/** Prints the version, or all that is known of it, on stdout. */
export function printVersion(raw: boolean): void {
  process.stdout.write(`${raw ? rawVersion() : programVersion()}\n`);
}
