/**
 * Services whose map holds slots: a full load, the replacement of an endpoint, a restart, and their memory. Prints one line of JSON. Needs
 * --expose-gc and, for the kernel's memory, an otherwise idle machine. To run it alone:
 *
 *   node test/lab/enter.mjs -- node --expose-gc test/bench/balance.ts SERVICES ENDPOINTS SLOTS|none CHANGES
 */
import { setTimeout as sleep } from "node:timers/promises";
import { freshPod, makeSlice, podsOf } from "./cluster.ts";
import { collect, kernelBytes, median, memoryOf, tell } from "./lib.ts";
import { feed, makeObjects, newProxier, openKernel, type Sample, timed } from "./proxier.ts";
import { decoded } from "./decoded.ts";

const [services, endpoints] = process.argv.slice(2, 4).map(Number);
const [slots = "none", changes = "0"] = process.argv.slice(4);
const annotations: Readonly<Record<string, string>> =
  slots === "none" ? {} : { "nft-proxier.dev/balance": "consistent", "nft-proxier.dev/balance-slots": slots };
const kernel = await openKernel();
const objects = makeObjects(services, endpoints).map(([service, slice]) => {
  return [{ ...service, metadata: { ...service.metadata, annotations } }, slice] as const;
});

collect();
const [ownBefore, kernelBefore] = [memoryOf("self", "RssAnon"), kernelBytes()];
const proxier = newProxier(kernel);
const load = await timed(proxier, () => feed(proxier, objects));
await sleep(500);
collect();
const own = memoryOf("self", "RssAnon") - ownBefore;
const inKernel = kernelBytes() - kernelBefore;

const samples: Sample[] = [];
for (let i = 0; i < Number(changes); i++) {
  const index = i % services;
  const pods = [...podsOf(index, endpoints).slice(1), freshPod(services, endpoints, i)];
  const slice = makeSlice(index, pods);
  samples.push(await timed(proxier, () => proxier.upsert(decoded({ kind: "EndpointSlice", object: slice }))));
}
await proxier.stop();
await kernel.close();
tell({
  ...{ services, endpoints, slots, load, own, inKernel },
  changeMs: median(samples.map(({ totalMs }) => totalMs)),
  changeKernelMs: median(samples.map(({ kernelMs }) => kernelMs)),
  changeOperations: median(samples.map(({ operations }) => operations)),
});
