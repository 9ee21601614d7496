import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { readFileSync } from "node:fs";
import { LOG_LEVELS, type LogLevel } from "../observe/log.js";
import { cleanupCommand } from "./cleanup.js";
import { UserError } from "./errors.js";
import { renderCommand } from "./render.js";
import { runCommand } from "./run.js";

/** Exit codes: 0 done, 1 failed, 2 not understood. */
export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;

/** What commands that read manifests are given. */
export interface CommonOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly logLevel: LogLevel;
}

function version(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return String((manifest as { version: unknown }).version);
}

function family(value: string): "ip" | "ip6" {
  if (value === "ip" || value === "ip6") return value;
  throw new InvalidArgumentError("Use ip or ip6.");
}

const logLevel = (): Option =>
  new Option("--log-level <level>", "least severe messages to log, on stderr").choices(LOG_LEVELS).default("info");
const manifests = (): Option =>
  new Option("--manifests <dir>", "directory of Service, EndpointSlice, Node and ServiceCIDR manifests (needed)");
const config = (): Option =>
  new Option("--config <file>", "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), YAML or JSON");

/** Not commander's own mandatory option: that one is missed before a mistyped flag, which is the likelier reason, is seen. */
function withManifests<T extends { readonly manifests?: string }>(
  options: T,
  self: Command,
): T & { manifests: string } {
  const { manifests } = options;
  if (manifests === undefined) return self.error("error: required option '--manifests <dir>' not specified");
  return { ...options, manifests };
}

/** The command line, as data; `done` receives the exit code of the command that ran. */
function program(done: (code: number) => void): Command {
  const root = new Command("nft-proxier")
    .description("Kubernetes Services on nf_tables: rewrites packets to Service addresses to their endpoints.")
    .version(version())
    .showSuggestionAfterError(true)
    .showHelpAfterError("(add --help for the options)")
    .exitOverride();
  const command = (name: string, description: string): Command =>
    root.command(name).description(description).exitOverride();

  command("run", "bring the kernel's tables up to the manifests, and keep them so")
    .addOption(manifests())
    .addOption(config())
    .option("--once", "write both families once and exit: 0 when the kernel took them")
    .addOption(logLevel())
    .action(async (options: Partial<CommonOptions> & { once?: boolean; logLevel: LogLevel }, self: Command) =>
      done(await runCommand(withManifests(options, self))),
    );

  command("render", "print the ruleset as `nft -f` loads it; touches no kernel and needs no rights")
    .addOption(manifests())
    .addOption(config())
    .addOption(new Option("--family <family>", "print only this family: ip or ip6").argParser(family))
    .addOption(logLevel())
    .action(async (options: Partial<CommonOptions> & { family?: "ip" | "ip6"; logLevel: LogLevel }, self: Command) =>
      done(await renderCommand(withManifests(options, self))),
    );

  command("cleanup", "remove the tables ip kube-proxy and ip6 kube-proxy, whoever of us or kube-proxy made them")
    .addOption(logLevel())
    .action(async (options: { logLevel: LogLevel }) => done(await cleanupCommand(options)));
  return root;
}

/**
 * Runs one command line.
 * @param argv arguments behind the program's name.
 * @returns the exit code.
 */
export async function main(argv: readonly string[]): Promise<number> {
  let code = 0;
  const root = program((result) => (code = result));
  if (argv.length === 0) {
    root.outputHelp({ error: true });
    return EXIT_USAGE;
  }
  try {
    await root.parseAsync([...argv], { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    if (error instanceof UserError) {
      process.stderr.write(`nft-proxier: ${error.message}\n`);
      return EXIT_FAILED;
    }
    throw error;
  }
}
