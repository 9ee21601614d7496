import { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { familyOf, parseAddress, withPort } from "../../base/ip.js";
import { vipsOf } from "../../model/service-address.js";
import { packetWords } from "../../tools/explain/packet-words.js";
import { packetOf, type PacketReport, reportOn, type Sources } from "../../tools/explain/packet-report.js";
import { reportText } from "../../tools/explain/text/report-text.js";
import { DaemonAway } from "../../daemon/control/client.js";
import { DaemonAnswers } from "../answers/daemon-answers.js";
import { parseSelector, select } from "../answers/selection.js";
import type { ExplainOptions } from "./question-commands.js";
import { UserError, writeOut } from "../stdio.js";
import { jsonText } from "../text/structured-text.js";
import { fitted } from "../text/terminal.js";

/** Version of the JSON report. Fields may be added to it, but not changed or removed. */
const KIND = { apiVersion: "nft-proxier.dev/v1", kind: "Explanation" } as const;

/**
 * `explain [tcp|udp|sctp] [SOURCE] DESTINATION:PORT|SERVICE`: shows what the kernel's rules do with the first packet of such a connection, or
 * for a service of a connection to each of its ports. No packet is sent. Exit code 0. Rejects with UsageError for invalid words, and with
 * UserError if the kernel cannot be read or there is no such service.
 */
export async function explainCommand(words: readonly string[], options: ExplainOptions): Promise<number> {
  const answers = new DaemonAnswers(options.socket);
  const packets = await packetsOf(words, answers, options.namespace);
  const specs = packets.map((packet) => packetOf(packet, options.in ?? ""));
  const kernel = await NftKernel.open();
  try {
    for (const [i, spec] of specs.entries()) {
      const report: PacketReport = await reportOn(spec, kernel, sourcesOf(answers));
      const text = options.output === "json" ? jsonText({ ...KIND, ...report }) : fitted(reportText(report));
      await writeOut(i === 0 || options.output === "json" ? text : `\n${text}`);
    }
  } finally {
    await kernel.close();
  }
  return 0;
}

/** Replaces a service by the first address of each of its ports. Returns other words unchanged. */
async function packetsOf(
  words: readonly string[],
  answers: DaemonAnswers,
  namespace: string | undefined,
): Promise<readonly (readonly string[])[]> {
  const { protocol, source, destination = "" } = packetWords(words);
  const selector = parseSelector(destination, namespace);
  if (selector === undefined || ("address" in selector && selector.port !== undefined)) return [words];
  const address = source === undefined ? undefined : parseAddress(source);
  const { items } = await select(answers, [destination], namespace);
  const packets = items.flatMap((item) => {
    const [vip] = vipsOf(item);
    const transport = item.protocol.toLowerCase();
    if (vip === undefined || transport !== (protocol ?? transport)) return [];
    if (address !== undefined && familyOf(address) !== item.family) return [];
    return [[transport, ...(source === undefined ? [] : [source]), withPort(vip, item.port)]];
  });
  if (packets.length > 0) return packets;
  const ports = new Set(items.map((item) => `${item.port}/${item.protocol} over ${FAMILY_NAMES[item.family]}`));
  throw new UserError(`${destination} has no address for such a packet; it has ${[...ports].join(", ")}`);
}

function sourcesOf(answers: DaemonAnswers): Sources {
  return {
    ownerOf: (to) => ifRunning(answers.ownerOf(to).then((list) => list?.items ?? [])),
    services: async () => (await ifRunning(answers.services()))?.items ?? [],
    nodePorts: async (family) => {
      const status = await ifRunning(answers.status());
      return status?.families.find((each) => each.family === family);
    },
  };
}

/** Resolves to undefined if no daemon answers. */
async function ifRunning<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof DaemonAway) return undefined;
    throw error;
  }
}
