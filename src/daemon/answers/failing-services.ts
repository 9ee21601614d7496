/** Finds services whose endpoints refuse all connections or never answer. Nothing is stored; the kernel is asked on request. */
import { counted, someOf } from "../../base/counted.js";
import { durationText } from "../../base/duration-text.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { type IpFamily, withPort } from "../../base/ip.js";
import { TimeSlice } from "../../base/time-slice.js";
import { type ConntrackTable, MOST_ADDRESSES } from "../../nft/conntrack/conntrack-table.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import { CtStatus, IpProto } from "../../nft/kernel/constants.js";
import type { StatusProblem } from "../../observe/status-report.js";
import { few } from "../../observe/few-problems.js";
import type { RefusalReadings } from "../../proxier/refusal-readings.js";
import { SERVICE_PROTOCOL } from "../../base/protocols.js";

/** Fewer failed connections may have a passing cause. */
const LEAST_FAILED = 3;
/** Maximum number of endpoints to name. */
const NAMED = 3;
/** An entry that was renewed more recently than this may still be answered, s. */
const PATIENCE_S = 1;

interface FailingOptions {
  readonly families: readonly IpFamily[];
  readonly model: Pick<ServiceModel, "services" | "eachView">;
  readonly refusals: Pick<RefusalReadings, "read" | "of">;
  /** Resolves to undefined if connections are not tracked. The caller of this function closes it. */
  readonly openConntrack: () => Promise<Pick<ConntrackTable, "dump" | "close"> | undefined>;
  /** Timeout of a connection whose first packet is not answered, s. */
  readonly synSentSeconds: () => Promise<number | undefined>;
}

/** Failed connections of one endpoint, or of several. */
interface Failed {
  refused: number;
  /** Time since the last refusal, ms. */
  agoMs: number;
  unanswered: number;
}

type Table = Pick<ConntrackTable, "dump">;

const keyOf = (address: string, port: number, protocol: string): string => `${address} ${port} ${protocol}`;

/** Maximum share of time in which the table of connections is read: it may have a million entries, and open pages ask every 2 s. */
const SHARE = 0.01;
/** A shorter search is repeated for each request, ms. */
const LONG_MS = 5;
/** Maximum age of a result, ms, because it is told as the present state. */
const OLD_MS = 30_000;

/** Finds the services on request. Requests that come soon after a long search get its result. */
export class FailingServices {
  #found: Promise<readonly StatusProblem[]> = Promise.resolve([]);
  #searching = false;
  #nextAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly options: FailingOptions) {}

  /** Never rejects: if the kernel cannot be read, nothing is known. */
  async problems(): Promise<readonly StatusProblem[]> {
    await this.options.refusals.read().catch(() => undefined);
    if (!this.#searching && performance.now() >= this.#nextAt) this.#found = this.#search();
    return this.#found;
  }

  async #search(): Promise<readonly StatusProblem[]> {
    const began = performance.now();
    this.#searching = true;
    const found = await findFailing(this.options);
    this.#searching = false;
    const took = performance.now() - began;
    if (took > LONG_MS) this.#nextAt = began + Math.min(took / SHARE, OLD_MS);
    return found;
  }
}

async function findFailing(options: FailingOptions): Promise<readonly StatusProblem[]> {
  const table = await options.openConntrack().catch(() => undefined);
  if (table === undefined) return [];
  try {
    const problems: StatusProblem[] = [];
    for (const family of options.families) problems.push(...(await ofFamily(family, options, table)));
    const others = ["service gets no answers", "services get no answers"] as const;
    return few(problems, others, "run `nft-proxier services`");
  } catch {
    return [];
  } finally {
    await table.close();
  }
}

async function ofFamily(family: IpFamily, options: FailingOptions, table: Table): Promise<StatusProblem[]> {
  const failed = new Map<string, Failed>();
  const at = (key: string): Failed => {
    const known = failed.get(key) ?? { refused: 0, agoMs: Infinity, unanswered: 0 };
    failed.set(key, known);
    return known;
  };
  for (const { address, port, protocol, count, agoMs } of options.refusals.of(family).endpoints.values()) {
    failed.set(keyOf(address, port, protocol), { refused: count, agoMs, unanswered: 0 });
  }
  await countUnanswered(family, options, table, (key) => void at(key).unanswered++);
  if (failed.size === 0) return [];
  const suspects = await suspectsOf(family, options, failed);
  const accepting = await acceptingAmong(family, table, suspects);
  return suspects.flatMap(({ view, endpoints }) =>
    endpoints.some((key) => accepting.has(key)) ? [] : problemOf(family, view, endpoints, failed),
  );
}

async function countUnanswered(
  family: IpFamily,
  { synSentSeconds }: FailingOptions,
  table: Table,
  onEndpoint: (key: string) => void,
): Promise<void> {
  const limit = await synSentSeconds();
  if (limit === undefined) return;
  const status = { value: CtStatus.dnat, mask: CtStatus.dnat | CtStatus.seenReply };
  await table.dump({ family, protocol: IpProto.tcp, status, state: "SYN_SENT" }, (entries) => {
    for (const { reply, timeout } of entries) {
      if (timeout !== undefined && timeout < limit - PATIENCE_S)
        onEndpoint(keyOf(reply.source, reply.sourcePort, "TCP"));
    }
  });
}

interface Suspect {
  readonly view: ServicePortView;
  /** All endpoints that new connections draw. */
  readonly endpoints: readonly string[];
}

/** Returns the service ports with enough failed connections. Visits all services, because an endpoint may belong to several. */
async function suspectsOf(
  family: IpFamily,
  { model }: FailingOptions,
  failed: ReadonlyMap<string, Failed>,
): Promise<Suspect[]> {
  const slice = new TimeSlice();
  const suspects: Suspect[] = [];
  for (const service of model.services()) {
    for (const view of model.eachView(family, service)) {
      if (slice.spent) await slice.yield();
      if (view === undefined) continue;
      const list = view.clusterEndpoints.length > 0 ? view.clusterEndpoints : view.localEndpoints;
      const endpoints = Array.from(list, ({ address, port }) => keyOf(address, port, view.protocol));
      if (numberOf(sumOf(endpoints, failed)) >= LEAST_FAILED) {
        suspects.push({ view, endpoints });
      }
    }
  }
  return suspects;
}

/** Returns the endpoints that have accepted a connection, or answered a datagram, which conntrack still knows. */
async function acceptingAmong(
  family: IpFamily,
  table: Table,
  suspects: readonly Suspect[],
): Promise<ReadonlySet<string>> {
  const accepting = new Set<string>();
  for (const [protocol, number] of Object.entries(SERVICE_PROTOCOL)) {
    const ofProtocol = suspects.filter(({ view }) => view.protocol === protocol);
    const addresses = [...new Set(ofProtocol.flatMap(({ endpoints }) => endpoints.map((key) => key.split(" ")[0])))];
    const answered = CtStatus.dnat | (protocol === "UDP" ? CtStatus.seenReply : CtStatus.assured);
    const status = { value: answered, mask: answered };
    // For many addresses, one pass over the table is cheaper.
    const filters = addresses.length > MOST_ADDRESSES ? [{}] : addresses.length === 0 ? [] : [{ addresses }];
    for (const filter of filters) {
      await table.dump({ family, protocol: number, status, ...filter }, (entries) => {
        for (const { reply } of entries) accepting.add(keyOf(reply.source, reply.sourcePort, protocol));
      });
    }
  }
  return accepting;
}

function sumOf(endpoints: readonly string[], failed: ReadonlyMap<string, Failed>): Failed {
  const sum: Failed = { refused: 0, agoMs: Infinity, unanswered: 0 };
  for (const key of endpoints) {
    const one = failed.get(key);
    if (one === undefined) continue;
    sum.refused += one.refused;
    sum.unanswered += one.unanswered;
    sum.agoMs = Math.min(sum.agoMs, one.agoMs);
  }
  return sum;
}

const numberOf = ({ refused, unanswered }: Failed): number => refused + unanswered;

function problemOf(
  family: IpFamily,
  { service, portName, port, protocol }: ServicePortView,
  endpoints: readonly string[],
  failed: ReadonlyMap<string, Failed>,
): StatusProblem[] {
  const { refused, agoMs, unanswered } = sumOf(endpoints, failed);
  const guilty = endpoints
    .filter((key) => failed.has(key))
    .map((key) => {
      const [address, own] = key.split(" ");
      return withPort(address, Number(own));
    });
  // The kernels of endpoints limit the rate of their ICMP errors.
  const many = protocol === "UDP" ? `at least ${counted(refused, "datagram")}` : counted(refused, "connection");
  const did = [
    ...(refused === 0 ? [] : [`refused ${many}, the last ${durationText(agoMs)} ago`]),
    ...(unanswered === 0 ? [] : [`did not answer ${counted(unanswered, "connection")}`]),
  ];
  const name = `${service}${portName === "" ? "" : `:${portName}`} (${port}/${protocol} ${FAMILY_NAMES[family]})`;
  const none = protocol === "UDP" ? "no endpoint has answered any" : "no endpoint has an open connection";
  const what = `${name}: ${someOf(guilty, NAMED)} ${did.join(", and ")}; ${none}`;
  const remedy =
    refused > 0
      ? "compare targetPort with the port on which the pods listen"
      : "check network policies, the route to the pods, and whether the pods answer";
  return [
    {
      what,
      remedy: `${remedy}. \`nft-proxier services ${service}\` shows the endpoints`,
      concerns: [{ service, protocol, port, family }],
    },
  ];
}
