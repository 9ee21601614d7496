import { FakeKernel } from "../kernel/fake-kernel.js";
import { countIgnored, shortfallOf } from "../daemon/reading.js";
import type { IpFamily } from "../model/types.js";
import { createLogger } from "../base/logger.js";
import { Proxier } from "../proxier/proxier.js";
import type { ManifestOptions } from "./options.js";
import { interfaceAddresses, manifestSource, MONOTONIC_CLOCK, nodeName, readConfig, startSource } from "./setup.js";
import { writeOut } from "./stdout.js";

const NOTHING_PRINTED =
  "nothing printed: the manifests are incomplete; mend what is named, or use --allow-incomplete to print what can be read";

/**
 * `render`: the ruleset of the manifests on stdout. Exit code 1 when something of them is not in it; then nothing is printed, unless
 * `allowIncomplete`, or unless all that is missing is what another object has too.
 */
export async function renderCommand(options: ManifestOptions & { readonly family?: "ip" | "ip6" }): Promise<number> {
  const log = await createLogger(options.logLevel);
  const config = await readConfig(options.config, log);
  const families: readonly IpFamily[] = options.family === undefined ? ["ip", "ip6"] : [options.family];
  const proxier = new Proxier({
    config,
    nodeName: nodeName(config),
    families,
    // An empty kernel in memory: nothing of this machine's rules may show in what is printed.
    kernel: new FakeKernel(),
    reproducible: true,
    log,
    clock: MONOTONIC_CLOCK,
    localAddresses: interfaceAddresses,
  });
  const source = manifestSource(options.manifests, false, log);
  try {
    await startSource(source, {
      upsert: (object) => proxier.upsert(object),
      remove: (kind, name) => proxier.remove(kind, name),
      synced: () => proxier.synced(),
      flush: () => undefined,
    });
    const reading = { source, model: proxier.model };
    const shortfall = options.allowIncomplete === true ? undefined : shortfallOf(reading, true);
    if (shortfall !== undefined) {
      log.error({ ...shortfall, ignored: countIgnored(reading) }, NOTHING_PRINTED);
      return 1;
    }
    await writeOut(await proxier.render());
    const ignored = countIgnored(reading);
    const counts = families.map((family) => [family, proxier.model.counts(family)] as const);
    log.info({ ...Object.fromEntries(counts), ignored }, "rendered");
    return ignored > 0 && options.allowIncomplete !== true ? 1 : 0;
  } finally {
    await source.stop();
    await proxier.stop();
  }
}
