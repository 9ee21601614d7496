import { DaemonAway, NotFound } from "../../daemon/control/client.js";
import { ownerPath } from "../../daemon/control/owner-path.js";
import type { ServiceList, ServicePortStatus, StatusReport } from "../../observe/status-report.js";
import { openConnections } from "../../tools/explain/connections.js";
import { legacyObstacles } from "../../tools/explain/legacy-obstacles.js";
import type { NftKernel } from "../../netlink/nft-kernel.js";
import {
  type Addressed,
  packetOf,
  type PacketReport,
  reportOn,
  reportText,
  type Sources,
} from "../../tools/explain/packet-report.js";
import type { ExplainOptions } from "../options.js";
import { openKernel } from "../open-kernel.js";
import { answerOf, jsonText } from "./status.js";
import { UserError, writeOut } from "../stdio.js";

export { PacketError } from "../../tools/explain/packet-report.js";

/** Version of the JSON report. Fields may be added to it, but not changed or removed. */
const KIND = { apiVersion: "nft-proxier.dev/v1", kind: "Explanation" } as const;

/**
 * `explain [tcp|udp|sctp] [SOURCE] DESTINATION:PORT`: shows what the kernel's rules do with the first packet of such a connection. No packet
 * is sent. Exit code 0. Rejects with PacketError for invalid words, and with UserError if the kernel cannot be read.
 */
export async function explainCommand(words: readonly string[], options: ExplainOptions): Promise<number> {
  const spec = packetOf(words, options.in ?? "");
  const kernel = await openKernel();
  let report: PacketReport;
  try {
    report = await reportOn(spec, kernel, sourcesOf(options.socket, kernel));
  } finally {
    await kernel.close();
  }
  await writeOut(options.output === "json" ? jsonText({ ...KIND, ...report }) : reportText(report));
  return 0;
}

function sourcesOf(socket: string | undefined, kernel: NftKernel): Sources {
  return {
    ownerOf: (to) => ownerAsked(socket, to),
    services: async () => (await answerIfAny<ServiceList>(socket, "services"))?.items ?? [],
    nodePorts: async (family) => {
      const status = await answerIfAny<StatusReport>(socket, "status");
      return status?.families.find((each) => each.family === family);
    },
    openConnections,
    legacyRules: (family) => legacyObstacles(kernel.legacy, family),
  };
}

async function ownerAsked(
  socket: string | undefined,
  to: Addressed,
): Promise<readonly ServicePortStatus[] | undefined> {
  try {
    return (await answerOf<ServiceList>(socket, ...ownerPath(to))).items;
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    if (error.cause instanceof NotFound) return [];
    if (error.cause instanceof DaemonAway) return undefined;
    throw error;
  }
}

/** Resolves to undefined if no daemon answers, or the object does not exist. */
async function answerIfAny<T>(socket: string | undefined, ...path: readonly string[]): Promise<T | undefined> {
  try {
    return await answerOf<T>(socket, ...path);
  } catch (error) {
    if (error instanceof UserError && (error.cause instanceof DaemonAway || error.cause instanceof NotFound))
      return undefined;
    throw error;
  }
}
