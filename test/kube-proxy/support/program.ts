/** The kube-proxy under test, named by the environment variable KUBE_PROXY. */
import { spawnSync } from "node:child_process";

/** Returns its path. Throws if there is none, and says how to get one. */
export function kubeProxyProgram(): string {
  const program = process.env["KUBE_PROXY"] ?? "";
  if (program === "") throw new Error("KUBE_PROXY is not set; test/kube-proxy/README.md says how to get a kube-proxy");
  return program;
}

let minor: number | undefined;

/** 30 for v1.30.5. Throws if the program prints no version. */
export function kubeProxyMinor(): number {
  if (minor !== undefined) return minor;
  const { stdout, error } = spawnSync(kubeProxyProgram(), ["--version"], { encoding: "utf8" });
  const [, found] = /^Kubernetes v1\.(\d+)\./m.exec(stdout ?? "") ?? [];
  if (found === undefined) throw new Error(`${kubeProxyProgram()} --version: ${error?.message ?? stdout}`);
  return (minor = Number(found));
}

/** Since this version the nftables mode needs no gate, and the gate may be gone. */
const GATELESS_MINOR = 33;

/** The gates that the nftables mode needs. */
export function nftablesGate(): Readonly<Record<string, boolean>> {
  return kubeProxyMinor() < GATELESS_MINOR ? { NFTablesProxyMode: true } : {};
}
