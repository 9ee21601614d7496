/** The kube-proxy that the tests run: the program that the environment variable KUBE_PROXY names. */
import { spawnSync } from "node:child_process";

/** Its path. Throws where there is none, with how to get one. */
export function kubeProxyProgram(): string {
  const program = process.env["KUBE_PROXY"] ?? "";
  if (program === "")
    throw new Error("KUBE_PROXY names no program; test/kube-proxy/README.md says where a kube-proxy comes from");
  return program;
}

let minor: number | undefined;

/** 30 of v1.30.5. Throws for a program that says no version. */
export function kubeProxyMinor(): number {
  if (minor !== undefined) return minor;
  const { stdout, error } = spawnSync(kubeProxyProgram(), ["--version"], { encoding: "utf8" });
  const [, found] = /^Kubernetes v1\.(\d+)\./m.exec(stdout ?? "") ?? [];
  if (found === undefined) throw new Error(`${kubeProxyProgram()} --version: ${error?.message ?? stdout}`);
  return (minor = Number(found));
}

/** From here on the nftables mode needs no gate, and the gate may be gone. */
const GATELESS_MINOR = 33;

/** What the nftables mode must be allowed with. */
export function nftablesGate(): Readonly<Record<string, boolean>> {
  return kubeProxyMinor() < GATELESS_MINOR ? { NFTablesProxyMode: true } : {};
}
