/**
 * Services with ClientIP affinity: a full load, single changes and a restart, in this process and namespace. Prints one line of JSON
 * (`Affinity`). Needs --expose-gc. Arguments: services endpoints changes
 */
import { freshPod, makeSlice, podsOf } from "./cluster.ts";
import { collect, median, tell } from "./lib.ts";
import { feed, makeObjects, newProxier, openKernel, type Sample, timed } from "./proxier.ts";
import { decoded } from "./decoded.ts";

export interface Affinity {
  readonly services: number;
  readonly endpoints: number;
  readonly load: Sample;
  /** Replacement of an endpoint in one service, kernel time included; medians. */
  readonly changeKernelMs: number;
  readonly changeMs: number;
  readonly restart: Sample;
}

const [services, endpoints, changes] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
const objects = makeObjects(services, endpoints).map(([service, slice]) => {
  const spec = { ...service.spec, sessionAffinity: "ClientIP" };
  return [{ ...service, spec }, slice] as const;
});

const proxier = newProxier(kernel);
collect();
const load = await timed(proxier, () => feed(proxier, objects));

const samples: Sample[] = [];
const current = [...objects];
for (let i = 0; i < changes; i++) {
  const index = i % services;
  const pods = [...podsOf(index, endpoints).slice(1), freshPod(services, endpoints, i)];
  current[index] = [objects[index][0], makeSlice(index, pods)];
  samples.push(
    await timed(proxier, () => proxier.upsert(decoded({ kind: "EndpointSlice", object: current[index][1] }))),
  );
}
await proxier.stop();

const again = newProxier(kernel);
collect();
const restart = await timed(again, () => feed(again, current));
await again.stop();
await kernel.close();

const measured: Affinity = {
  services,
  endpoints,
  load,
  changeKernelMs: median(samples.map(({ kernelMs }) => kernelMs)),
  changeMs: median(samples.map(({ totalMs }) => totalMs)),
  restart,
};
tell(measured);
