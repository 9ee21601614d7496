import { IP_FAMILIES } from "../../base/ip-families.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { countIgnored, shortfallOf } from "../../daemon/complete-reading.js";
import type { IpFamily } from "../../base/ip.js";
import { nodeFacts, nodePortAddresses } from "../../node/node-facts.js";
import { createLogger, type Logger } from "../../base/logger.js";
import { problemLogger, transferLogger } from "../../proxier/model-log.js";
import { rulesetOptions } from "../../proxier/ruleset-options.js";
import { TABLE_COMMENT, TABLE_NAME } from "../../ruleset/names.js";
import { FamilyRuleset } from "../../ruleset/family-ruleset.js";
import { ModelSink } from "../../model/model-sink.js";
import { Table } from "../../nft/engine-exports.js";
import type { RenderOptions } from "./manifest-commands.js";
import { decoderFor, interfaceAddresses, manifestSource, nodeName, readConfig } from "../setup.js";
import { writeOut } from "../stdio.js";

const NOTHING_PRINTED =
  "nothing printed, because the manifests are incomplete; correct the reported problems, or use --allow-incomplete to print the rest";

/**
 * `render`: prints the ruleset of the manifests on stdout. Exit code 1 if a part of them cannot be rendered. Then nothing is printed, unless
 * `allowIncomplete` is set, or the only missing parts are those that another object has. It does not ask the kernel, so the output does not
 * depend on this machine's rules.
 */
export async function renderCommand(options: RenderOptions): Promise<number> {
  const log = await createLogger(options.logLevel);
  const config = await readConfig(options.config, log);
  const families = options.family === undefined ? IP_FAMILIES : [options.family];
  const sink = new ModelSink({
    families,
    node: { nodeName: nodeName(config) },
    onProblem: problemLogger(log),
    onTransfer: transferLogger(log),
  });
  const source = manifestSource(options.manifests, decoderFor(config), undefined, log);
  try {
    await source.start(sink);
    const { model } = sink;
    const reading = { source, model };
    const shortfall = options.allowIncomplete === true ? undefined : shortfallOf(reading, true);
    if (shortfall !== undefined) {
      log.error({ ...shortfall, ignored: countIgnored(reading) }, NOTHING_PRINTED);
      return 1;
    }
    await writeOut(await render(sink, config, families, log));
    const ignored = countIgnored(reading);
    const counts = families.map((family) => [family, model.counts(family)] as const);
    log.info({ ...Object.fromEntries(counts), ignored }, "rendered");
    return ignored > 0 && options.allowIncomplete !== true ? 1 : 0;
  } finally {
    await source.stop();
  }
}

/** Returns the tables for this node, as text for `nft -f`. */
async function render(
  { model, node }: ModelSink,
  config: ProxyConfig,
  families: readonly IpFamily[],
  log: Logger,
): Promise<string> {
  const local = await interfaceAddresses();
  const facts = nodeFacts(config, nodeName(config), node);
  model.setZone(facts.context.zone);
  const tables = families.map((family) => {
    const nodePorts = nodePortAddresses(config, facts, family, local);
    if (nodePorts.warning !== undefined) log.warn(nodePorts.warning);
    const table = new Table(undefined, { family, name: TABLE_NAME, comment: TABLE_COMMENT });
    const options = rulesetOptions(config, facts, family, nodePorts);
    // The same objects must give the same text, so numbers of endpoints with affinity start at 0 instead of anywhere.
    return { family, table, ruleset: new FamilyRuleset(table, family, options, 0) };
  });
  const { services } = model.takeDirty();
  for (const { family, ruleset } of tables) {
    ruleset.setServiceCIDRs(model.serviceCIDRs(family));
    for (const service of services) {
      // If a service cannot be expressed, the text must still have the others.
      try {
        ruleset.update(service, model.views(family, service));
      } catch (error) {
        log.error({ family, service, err: error }, "service cannot be rendered; skipped");
      }
    }
  }
  return tables.map(({ table }) => table.render()).join("\n");
}
