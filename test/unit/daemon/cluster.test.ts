import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { parseConfig } from "../../../src/config/load.js";
import { type Cluster, openCluster } from "../../../src/daemon/cluster.js";
import { Metrics } from "../../../src/observe/metrics.js";
import { ApiServer } from "../../lab/api-server/api-server.ts";
import { eventually } from "../../lab/eventually.ts";
import { SILENT } from "../../support/log.ts";
import { NODE, Recorder, service } from "../objects/kubernetes/support.ts";
import { temporaryDirectory } from "../../support/temporary-directory.ts";

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function open(api: ApiServer): Promise<Cluster> {
  const directory = temporaryDirectory();
  const kubeconfig = join(directory, "kubeconfig");
  await writeFile(kubeconfig, api.kubeconfig());
  const configuration = JSON.stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "nftables",
    clientConnection: { kubeconfig },
  });
  const { config } = parseConfig(configuration, "config.json");
  const metrics = new Metrics({ families: ["ip"], version: "0" });
  const cluster = await openCluster({ config, nodeName: NODE, metrics, log: SILENT });
  closing.push(
    () => cluster.close(),
    () => cluster.source.stop(),
  );
  return cluster;
}

test("a list that removes most services causes an Event on the Node", async () => {
  const api = await ApiServer.start();
  closing.push(() => api.stop());
  for (let i = 0; i < 12; i++) api.put(service(`a/s-${i}`));
  const { source } = await open(api);
  const sink = new Recorder();
  await source.start(sink);
  const [watch] = await api.watching("services");
  const empty = {
    kind: "ServiceList",
    apiVersion: "v1",
    metadata: { resourceVersion: String(api.revision) },
    items: [],
  };
  api.fail({ resource: "services", verb: "list", times: 1 }, { status: 200, body: JSON.stringify(empty) });
  watch.error(410);
  await sink.seen("- Service a/s-11");
  await eventually(() => expect(api.events).toHaveLength(1));
  expect(api.events[0]).toMatchObject({
    type: "Warning",
    reason: "ObjectsRemoved",
    action: "List",
    regarding: { kind: "Node", name: NODE },
    note: "the API server's new list of Service objects lacks 12 of 12; the node no longer serves them",
  });
});
