import { FakeKernel } from "../kernel/fake-kernel.js";
import { createLogger } from "../observe/log.js";
import { Proxier } from "../proxier/proxier.js";
import type { CommonOptions } from "./options.js";
import { interfaceAddresses, manifestSource, MONOTONIC_CLOCK, nodeName, readConfig, startSource } from "./setup.js";

/** `render`: the ruleset of the manifests on stdout. */
export async function renderCommand(options: CommonOptions & { readonly family?: "ip" | "ip6" }): Promise<number> {
  const log = await createLogger(options.logLevel);
  const config = await readConfig(options.config, log);
  const proxier = new Proxier({
    config,
    nodeName: nodeName(config),
    families: options.family === undefined ? ["ip", "ip6"] : [options.family],
    // An empty kernel in memory: nothing of this machine's rules may show in what is printed.
    kernel: new FakeKernel(),
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
    await write(await proxier.render());
    return 0;
  } finally {
    await source.stop();
    await proxier.stop();
  }
}

/** Writes all of it before the process may end, also into a slow pipe. */
function write(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => (error == null ? resolve() : reject(error)));
  });
}
