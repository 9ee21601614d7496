/**
 * Changes a Service with so many endpoints that it is written in pieces, in a process that can be killed. Another Service has three. Arguments:
 *
 *   delete N   deletes the large Service, and kills this process after N transactions
 *   move N     replaces all endpoints of the large Service. After N transactions, its external IP passes to the other one
 *   deleted, moved   writes the objects as they are after that, on whatever table is there
 */
import { setTimeout as sleep } from "node:timers/promises";
import { makeService, makeSlice, podsOf } from "../../bench/cluster.ts";
import { type ClusterObjects, feed, newProxier, openKernel } from "../../bench/proxier.ts";
import { decoded } from "../../bench/decoded.ts";

const ENDPOINTS = 20_000;
const EXTERNAL_IP = "203.0.113.1";
const [what = "", transactions = "0"] = process.argv.slice(2);

/** @param pods number of the first pod. */
function large(pods: number, externalIPs: readonly string[]): ClusterObjects[number] {
  const service = makeService(0);
  const numbers = podsOf(0, ENDPOINTS).map((pod) => pod + pods);
  return [{ ...service, spec: { ...service.spec, externalIPs: [...externalIPs] } }, makeSlice(0, numbers)];
}

function small(externalIPs: readonly string[]): ClusterObjects[number] {
  const service = makeService(1);
  return [{ ...service, spec: { ...service.spec, externalIPs: [...externalIPs] } }, makeSlice(1, [9, 10, 11])];
}

const before = [large(0, [EXTERNAL_IP]), small([])];
const moved = [large(ENDPOINTS, []), small([EXTERNAL_IP])];
const starts: Readonly<Record<string, ClusterObjects>> = { delete: before, move: before, deleted: [small([])], moved };

const kernel = await openKernel();
let after: (() => void) | undefined;
let left = Number(transactions);
const commit = kernel.commit.bind(kernel);
kernel.commit = async (ops, options) => {
  const result = await commit(ops, options);
  if (options?.dryRun !== true && after !== undefined && --left === 0) after();
  return result;
};
const proxier = newProxier(kernel);

function put([service, slice]: ClusterObjects[number]): void {
  proxier.upsert(decoded({ kind: "Service", object: service }));
  proxier.upsert(decoded({ kind: "EndpointSlice", object: slice }));
}

/** Writes until two writes in turn have nothing to do, and no deletion is deferred. */
async function written(): Promise<void> {
  for (let idle = 0, writes = 0; idle < 2; writes++) {
    const { ok, families } = await proxier.sync();
    const [{ outcome } = { outcome: undefined }] = families;
    if (!ok || writes > 1000 || outcome?.ok !== true) throw new Error("the writes failed");
    const { total, applyAgainMs } = outcome.result;
    idle = total === 0 && applyAgainMs === undefined ? idle + 1 : 0;
    if (applyAgainMs !== undefined) await sleep(applyAgainMs);
  }
}

await feed(proxier, starts[what] ?? []);
await written();
if (what === "delete") {
  after = () => process.kill(process.pid, "SIGKILL");
  proxier.remove("Service", "bench/svc-0");
  proxier.remove("EndpointSlice", "bench/svc-0-a");
} else if (what === "move") {
  after = () => moved.forEach(put);
  put(large(ENDPOINTS, [EXTERNAL_IP]));
}
await written();
await proxier.stop();
await kernel.close();
if (left > 0) throw new Error(`${left} transactions are missing`);
