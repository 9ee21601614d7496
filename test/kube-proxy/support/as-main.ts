/**
 * kube-proxy with nft-proxier's command line, for the packet tests. `run --once --manifests DIR --config FILE` starts it on these objects
 * and ends it when its rules are written; `cleanup` runs its --cleanup. Used as NFT_PROXIER_MAIN, with KUBE_PROXY.
 */
import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { ApiServer, type KubeJson } from "../../lab/api-server/api-server.ts";
import { mustRun, run } from "../../lab/namespace.ts";
import { FAMILIES } from "../../lab/topology.ts";
import type { Manifest } from "../../packets/support/objects.ts";
import { type Host, KubeProxy, kubeProxyCleanup } from "./kube-proxy.ts";

const HERE: Host = {
  run: ([program = "", ...args], options) => run(program, args, options),
  mustRun: ([program = "", ...args], options) => mustRun(program, args, options),
  spawn: spawnHere,
};

function spawnHere([program = "", ...args]: readonly string[], options: SpawnOptions = {}): ChildProcess {
  return spawn(program, args, options);
}

async function once(manifests: string, config: string): Promise<void> {
  const api = await ApiServer.start();
  for (const name of await readdir(manifests)) {
    const list = JSON.parse(await readFile(join(manifests, name), "utf8")) as { readonly items: readonly KubeJson[] };
    for (const item of list.items) api.put(item);
  }
  const settings = JSON.parse(await readFile(config, "utf8")) as Manifest;
  const { mode: _, clientConnection: __, ...others } = settings;
  const proxy = await KubeProxy.launch(HERE, { mode: "nftables", kubeconfig: api.kubeconfig(), settings: others });
  // Each family syncs once with the services, and soon afterwards once more with the Node.
  for (let waited = 0; waited < 2000; waited += proxy.syncs < FAMILIES.length ? 0 : 50) {
    if (proxy.ended) throw new Error(`kube-proxy ended:\n${proxy.log}`);
    await sleep(50);
  }
  await proxy.end();
  process.stderr.write(proxy.log);
  await api.stop();
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    once: { type: "boolean" },
    "allow-incomplete": { type: "boolean" },
    manifests: { type: "string" },
    config: { type: "string" },
  },
});
const [command] = positionals;
if (command === "run" && values.once === true) await once(values.manifests ?? "", values.config ?? "");
else if (command === "cleanup") process.exitCode = (await kubeProxyCleanup(HERE, "nftables")).code;
else throw new Error(`kube-proxy has no command ${command}`);
