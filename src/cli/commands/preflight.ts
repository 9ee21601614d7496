import { release } from "node:os";
import { reasonOf } from "../../base/unknown.js";
import { createLogger } from "../../base/logger.js";
import { ConfigError } from "../../config/config-error.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { KernelError } from "../../nft/kernel/errors.js";
import { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { type KernelFamilies, kernelFamilies } from "../../node/kernel-families.js";
import type { ConfigReading } from "../../migration/preflight/configuration.js";
import { type Finding, inOrder, of, problem } from "../../migration/preflight/finding.js";
import { checkModules, mayRead, mayTry, type ModuleFacts, readModules } from "../../migration/preflight/modules.js";
import { objectFacts, type ObjectFacts } from "../../migration/preflight/objects.js";
import { preflight } from "../../migration/preflight/preflight.js";
import { KIND, type PreflightReport, reportText } from "../../migration/preflight/preflight-report.js";
import type { SnapshotSink } from "./conntrack/service-snapshot.js";
import type { PreflightOptions } from "./preflight-command.js";
import { resolveConfig } from "../flags/flag-config.js";
import type { FlagValues } from "../flags/kube-proxy-flags.js";
import { interfaceAddresses, nodeName } from "../setup.js";
import { structuredText } from "../text/structured-text.js";
import { fitted } from "../text/terminal.js";
import { UserError, writeError, writeOut } from "../stdio.js";
import { programVersion } from "../version.js";

/** Exit codes: the checks found no problem; something would fail or be lost; the node could not be inspected. */
const READY = 0;
const NOT_READY = 1;
const NOT_INSPECTED = 2;

/** `preflight`: shows what would change on this node if nft-proxier replaced kube-proxy. Changes nothing. */
export async function preflightCommand(flags: FlagValues, options: PreflightOptions): Promise<number> {
  const reading = await readConfiguration(flags);
  const { config } = reading.loaded;
  let inspected: Inspected;
  try {
    inspected = await inspect(reading, options);
  } catch (error) {
    if (!(error instanceof UserError) && !(error instanceof KernelError)) throw error;
    writeError(`this node could not be inspected: ${error.message}`);
    return NOT_INSPECTED;
  }
  const ready = inspected.findings.every(({ level }) => level !== "problem");
  const about = { ...KIND, nodeName: nodeName(config), version: programVersion(), kernel: release() };
  const report = { ...about, ready, ...inspected };
  await writeOut(await textOf(report, options.output));
  return ready ? READY : NOT_READY;
}

async function textOf(report: PreflightReport, output: PreflightOptions["output"]): Promise<string> {
  return output === "json" || output === "yaml" ? structuredText(report, output) : fitted(reportText(report));
}

/** An invalid configuration is a finding. The other checks then use the defaults. */
async function readConfiguration(flags: FlagValues): Promise<ConfigReading> {
  try {
    return { loaded: await resolveConfig(flags) };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    // Invalid flags have ended the command before.
    return { loaded: await resolveConfig({}), refused: error.problems, file: flags.config ?? "" };
  }
}

type Inspected = Pick<PreflightReport, "findings" | "unchecked">;

async function inspect(reading: ConfigReading, options: PreflightOptions): Promise<Inspected> {
  const { config } = reading.loaded;
  const families = kernelFamilies();
  const modules = await readModules(families.families.includes("ip6"));
  const loads = options.loadModules === true;
  let kernel: NftKernel | undefined;
  try {
    kernel = loads || mayRead(modules) ? await NftKernel.open() : undefined;
  } catch (error) {
    if (!(error instanceof KernelError) || error.code !== "no-nftables") throw error;
    return { findings: withoutTables(modules, error.message), unchecked: ["services", "rules"] };
  }
  try {
    const { sink, objects } = await readCluster(reading, families, options.manifests);
    const tries = kernel !== undefined && (loads || mayTry(modules));
    const findings = await preflight({
      ...{ reading, nodeName: nodeName(config), node: sink?.node, objects, families, modules, kernel },
      mayTry: tries,
      local: await interfaceAddresses(),
    });
    return { findings, unchecked: [...("away" in objects ? ["services"] : []), ...(tries ? [] : ["rules"])] };
  } finally {
    await kernel?.close();
  }
}

function withoutTables(modules: ModuleFacts, message: string): Finding[] {
  const said = problem(message, "use a kernel with nf_tables (CONFIG_NF_TABLES)");
  return inOrder([...of("kernel", "nf-tables", [said]), ...of("kernel", "modules", checkModules(modules))]);
}

interface ClusterReading {
  readonly sink?: SnapshotSink;
  readonly objects: ObjectFacts;
}

/** Reads the manifests, or the API server's objects. It is not a failure if the API server does not answer. */
async function readCluster(
  { loaded: { config } }: ConfigReading,
  { families }: KernelFamilies,
  manifests: string | undefined,
): Promise<ClusterReading> {
  if (manifests === undefined && !namesServer(config)) return { objects: { away: "no API server is configured" } };
  const { readObjects } = await import("./conntrack/service-snapshot.js");
  try {
    const sink = await readObjects(config, manifests, await createLogger("error"));
    return { sink, objects: objectFacts(sink.model, families, sink) };
  } catch (error) {
    if (manifests !== undefined || !(error instanceof UserError)) throw error;
    return { objects: { away: reasonOf(error) } };
  }
}

/** Whether there is an API server, from the configuration or a pod's environment. */
function namesServer({ clientConnection, master }: ProxyConfig): boolean {
  return clientConnection.kubeconfig !== "" || master !== "" || process.env["KUBERNETES_SERVICE_HOST"] !== undefined;
}
