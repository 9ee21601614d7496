/** An API server (the double, in this process) with a cluster, and the flags for a program that serves it. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { ApiServer, type KubeJson } from "../lab/api-server/api-server.ts";
import { makeService, makeSlice, podsOf } from "./cluster.ts";

const NODE = "bench-node";

export interface ApiCluster {
  /** kube-proxy's flags. */
  readonly flags: readonly string[];
  /** Adds or replaces an object. */
  put(object: unknown): void;
  close(): Promise<void>;
}

export async function startApiCluster(services: number, endpoints: number): Promise<ApiCluster> {
  const api = await ApiServer.start();
  const put = (object: unknown): void => void api.put(object as KubeJson);
  const addresses = [{ type: "InternalIP", address: "192.0.2.1" }];
  put({ apiVersion: "v1", kind: "Node", metadata: { name: NODE }, status: { addresses } });
  for (let i = 0; i < services; i++) {
    put(makeService(i));
    put(makeSlice(i, podsOf(i, endpoints)));
  }
  const directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-bench-"));
  const kubeconfig = path.join(directory, "kubeconfig");
  writeFileSync(kubeconfig, api.kubeconfig());
  return {
    flags: [`--kubeconfig=${kubeconfig}`, `--hostname-override=${NODE}`, "--healthz-port=0", "--oom-score-adj=0"],
    put,
    async close() {
      await api.stop();
      rmSync(directory, { recursive: true });
    },
  };
}
