/**
 * One Service with many ports, and one EndpointSlice that lists them all. Measures the cost of a change of one endpoint and of a change
 * that writes nothing. Also measures how long these changes, the first load and commands block the event loop. Prints one line of JSON
 * (`ManyPorts`). Arguments: ports rounds [annotation value]
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { MAIN } from "./image.ts";
import { tell } from "./lib.ts";
import { type LogLine, Program } from "./program.ts";

/** One write, and how long the event loop was held from the change until a while after it. */
export interface Write {
  /** Number of transactions, and the sums of their times: from start to the kernel's answer, and inside the kernel. */
  readonly writes: number;
  readonly ms: number;
  readonly kernelMs: number;
  /** From the change's arrival at the proxier until all of it was written. */
  readonly latencyMs: number;
  readonly heldMs: number;
}

export interface ManyPorts {
  readonly ports: number;
  readonly load: Write;
  /** Replacement of one of two endpoints: the round with the median ratio of the two times. */
  readonly replace: Write;
  /** Event loop held by a change that writes nothing, and by commands. */
  readonly heldMs: Readonly<Record<string, number>>;
}

const [ports, rounds] = process.argv.slice(2, 4).map(Number);
const [annotation, value] = process.argv.slice(4);
const FIRST_PORT = 20_000;
/** A write, the deletions after its grace period, and connection tracking end within this time. */
const REST_MS = 3_000;

function objects(endpoint: string, label: string): string {
  const list = Array.from({ length: ports }, (_, i) => ({ name: `m${i}`, port: FIRST_PORT + i, protocol: "UDP" }));
  const annotations = annotation === undefined ? {} : { [`nft-proxier.dev/${annotation}`]: value };
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "media", labels: { label }, annotations },
    spec: { clusterIP: "10.96.43.1", ports: list },
  };
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "media-1", labels: { "kubernetes.io/service-name": "media", label } },
    addressType: "IPv4",
    ports: list,
    endpoints: ["10.244.1.11", endpoint].map((address) => ({ addresses: [address] })),
  };
  return JSON.stringify({ apiVersion: "v1", kind: "List", items: [service, slice] });
}

const directory = mkdtempSync(join(tmpdir(), "nft-proxier-bench-"));
const manifests = join(directory, "manifests");

function write(endpoint: string, label = ""): void {
  writeFileSync(join(directory, "next"), objects(endpoint, label));
  renameSync(join(directory, "next"), join(manifests, "media.json"));
}

const isSync = ({ msg, family }: LogLine): boolean => msg === "synced" && family === "ip";

try {
  mkdirSync(manifests);
  write("10.244.1.12");
  const socket = join(directory, "socket");
  let synced: LogLine[] = [];
  const note = (line: LogLine): boolean => isSync(line) && synced.push(line) > 0;
  const program = await Program.start(
    ["run", "--manifests", manifests, "--control-socket", socket, "--log-level", "debug"],
    true,
    note,
  );
  program.follow(note);
  /** Sums over all transactions since the last call. */
  const taken = async (): Promise<Write> => {
    await sleep(REST_MS);
    const { heldMs } = await program.blocked();
    const lines = synced;
    synced = [];
    const total = (of: (line: LogLine) => number | undefined): number =>
      lines.reduce((sum, line) => sum + (of(line) ?? 0), 0);
    return {
      writes: lines.length,
      ms: total(({ ms }) => ms),
      kernelMs: total(({ kernelMs }) => kernelMs),
      latencyMs: Math.max(0, ...lines.map(({ latencyMs = 0 }) => latencyMs)),
      heldMs,
    };
  };
  const load = await taken();
  const replaced: Write[] = [];
  for (let round = 0; round < rounds; round++) {
    write(`10.244.2.${round + 1}`);
    replaced.push(await taken());
  }
  // All figures come from the same round.
  const replace = replaced.sort((a, b) => a.ms / a.kernelMs - b.ms / b.kernelMs)[Math.floor((rounds - 1) / 2)];
  const heldMs: Record<string, number> = {};
  const held = async (what: string, work: () => void): Promise<void> => {
    await program.blocked();
    work();
    await sleep(REST_MS);
    heldMs[what] = (await program.blocked()).heldMs;
  };
  await held("label", () => write(`10.244.2.${rounds}`, "changed"));
  for (const command of [
    ["services"],
    ["services", "default/media"],
    ["services", "-o", "wide"],
    ["status"],
    ["top", "-n", "1"],
    ["explain", "udp", `10.96.43.1:${FIRST_PORT}`],
  ]) {
    await held(command.join(" "), () => {
      const { status, stderr } = spawnSync(process.execPath, [MAIN, ...command, "--socket", socket], {
        maxBuffer: 1 << 28,
        encoding: "utf8",
      });
      if (status !== 0 && command[0] !== "status") process.stderr.write(`${command.join(" ")}: ${stderr}\n`);
    });
  }
  await program.end();
  tell({ ports, load, replace, heldMs } satisfies ManyPorts);
} finally {
  rmSync(directory, { recursive: true });
}
