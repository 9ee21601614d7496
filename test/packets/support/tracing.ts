/** `trace` as a process, and flows for it to report. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { expect } from "vitest";
import { parseAddress } from "../../../src/base/ip.ts";
import type { TracedPacket } from "../../../src/tools/trace/traced-packet.ts";
import type { Outcome, Transport } from "../../lab/agent.ts";
import { eventually } from "../../lab/eventually.ts";
import { FAMILIES, type Family } from "../../lab/topology.ts";
import type { Cluster } from "./cluster.ts";
import { type Target, TRANSPORTS } from "./objects.ts";

/** A line of the output of `-o json`. */
export type Line = TracedPacket & {
  /** RFC 3339. */
  readonly time: string;
  readonly service?: string;
  readonly endpoint?: { readonly address: string; readonly local: boolean; readonly pod?: string };
};

export interface Flow {
  readonly from: string;
  readonly to: Target;
  readonly family: Family;
  readonly protocol: Transport;
  readonly sourcePort: number;
}

let nextPort = 20_000;
/** One flow for each family and protocol, with its own port. */
export function flows(from: readonly string[], to: readonly Target[], protocols = TRANSPORTS): Flow[] {
  return from.flatMap((one) =>
    to.flatMap((each) =>
      FAMILIES.flatMap((family) =>
        protocols.map((protocol): Flow => ({ from: one, to: each, family, protocol, sourcePort: ++nextPort })),
      ),
    ),
  );
}

/** Returns how the flow's connection ended. */
export async function send(
  cluster: Cluster,
  { from, to, family, protocol, sourcePort }: Flow,
  timeoutMs?: number,
): Promise<Outcome> {
  const { namespace, address } = cluster.source(from);
  const source = address === undefined ? {} : { source: address[family] };
  const probe = { protocol, ...source, destination: to.address[family], port: to.port, sourcePort, timeoutMs };
  const [outcome] = await namespace.agent().probe(probe);
  return outcome;
}

/** A tracing command, after it has reported that it traces. */
export class Tracing {
  readonly lines: Line[] = [];
  stderr = "";
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;

  private constructor(cluster: Cluster, words: readonly string[]) {
    this.child = cluster.start(["trace", ...words, "-o", "json"], "pipe");
    this.ended = new Promise((resolve) => this.child.once("close", resolve));
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    if (this.child.stdout === null) throw new Error("no pipe");
    createInterface({ input: this.child.stdout }).on("line", (line) => this.lines.push(JSON.parse(line) as Line));
  }

  /** @param socket the daemon's socket. */
  static async start(cluster: Cluster, words: readonly string[], socket: string): Promise<Tracing> {
    const tracing = new Tracing(cluster, [...words, "--for", "0", "--socket", socket]);
    await eventually(() => expect(tracing.stderr).toContain("tracing "));
    return tracing;
  }

  of({ family, protocol, to, sourcePort }: Flow): Line | undefined {
    return this.lines.find(
      ({ packet, ...line }) =>
        line.family === family &&
        line.protocol === protocol &&
        packet.sourcePort === sourcePort &&
        packet.destination === parseAddress(to.address[family]) &&
        packet.destinationPort === to.port,
    );
  }

  /** Sends the signal of Ctrl-C. Resolves with the exit code. */
  interrupt(): Promise<number | null> {
    this.child.kill("SIGINT");
    return this.ended;
  }
}
