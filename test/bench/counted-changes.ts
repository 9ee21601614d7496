/**
 * Single changes with and without counters, in one process and in turns, so that other load affects all alike. Run it with
 *
 *   node test/lab/enter.mjs -- node --expose-gc test/bench/counted-changes.ts [SERVICES] [CHANGES]
 */
import { SERVICE_COUNTERS } from "../../dist/ruleset/service-counters.js";
import { Namespace } from "../lab/namespace.ts";
import { freshPod, makeSlice, podsOf } from "./cluster.ts";
import { decoded } from "./decoded.ts";
import { collect, fixed, quantile } from "./lib.ts";
import { feed, makeObjects, newProxier, openKernel, type Sample, timed } from "./proxier.ts";

const ENDPOINTS = 10;
const [services = 10_000, changes = 1000] = process.argv.slice(2).map(Number);
const objects = makeObjects(services, ENDPOINTS);
/** The first and the last count nothing: their difference is noise. */
const variants = await Promise.all(
  ([...SERVICE_COUNTERS, "off"] as const).map(async (serviceCounters, i) => {
    const namespace = await Namespace.create(`changes-${i}`);
    const kernel = await openKernel(namespace.name);
    const proxier = newProxier(kernel, { serviceCounters, watch: false });
    await timed(proxier, () => feed(proxier, objects));
    const replaced: Sample[] = [];
    const scaled: Sample[] = [];
    return { name: serviceCounters, namespace, kernel, proxier, replaced, scaled };
  }),
);
collect();

for (let i = 0; i < changes; i++) {
  const index = (i * 7) % services;
  const pods = podsOf(index, ENDPOINTS);
  const other = [...pods.slice(1), freshPod(services, ENDPOINTS, i)];
  for (const [into, now] of [
    ["replaced", other],
    ["scaled", pods.slice(1)],
  ] as const) {
    // Change the order each time, and what precedes each: a variant that follows its like finds its code in the caches.
    for (const variant of shuffled(variants)) {
      const change = { kind: "EndpointSlice", object: makeSlice(index, now) } as const;
      const sample = await timed(variant.proxier, () => variant.proxier.upsert(decoded(change)));
      if (sample.transactions === 1) variant[into].push(sample);
    }
  }
}

function shuffled<T>(list: readonly T[]): T[] {
  const rest = [...list];
  return list.map(() => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]);
}

const us = (samples: readonly Sample[], of: (sample: Sample) => number): string =>
  [0.1, 0.5].map((q) => fixed(quantile(samples.map(of), q) * 1000, 0)).join(" / ");
console.table(
  variants.flatMap(({ name, replaced, scaled }) =>
    Object.entries({ "endpoint replaced": replaced, "scaled by one": scaled }).map(([change, samples]) => ({
      counters: name,
      change,
      changes: samples.length,
      "p10 / p50, µs": us(samples, ({ totalMs }) => totalMs),
      "main thread, µs": us(samples, ({ cpuMs }) => cpuMs),
      "kernel, µs": us(samples, ({ kernelMs }) => kernelMs),
    })),
  ),
);
for (const { proxier, kernel, namespace } of variants) {
  await proxier.stop();
  await kernel.close();
  await namespace.destroy();
}
