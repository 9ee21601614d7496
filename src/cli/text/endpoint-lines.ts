/** Prints endpoints of services, one per line: service, pod and node, state, and share of connections. */
import { counted } from "../../base/counted.js";
import { columns } from "../../base/columns.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { annotationTexts } from "../../daemon/control/annotation-text.js";
import { type EndpointStatus, type ServicePortStatus, serviceText } from "../../observe/status-report.js";
import { withPort } from "../../base/ip.js";

const TITLES = [
  ...["ENDPOINT", "POD", "NODE", "ZONE", "HINTS", "LOCAL", "STATE"],
  ...["SHARE", "LOCAL SHARE", "CONNECTIONS", "OPEN", "HALF OPEN"],
] as const;

/** The endpoints of one service port. */
interface Block {
  readonly port: ServicePortStatus;
  readonly rows: readonly (readonly string[])[];
}

/** Prints one table per port of a single service. For several services, prints one table whose lines name the service. */
export class EndpointLines {
  readonly #headers: boolean;
  readonly #blocks: Block[] = [];
  readonly #left = { endpoints: 0, open: 0, halfOpen: 0 };

  constructor(headers: boolean) {
    this.#headers = headers;
  }

  add(port: ServicePortStatus): void {
    const { endpoints } = port;
    if (endpoints === undefined) return;
    const local = port.internalTrafficPolicy === "Local" || port.externalTrafficPolicy === "Local";
    this.#blocks.push({ port, rows: endpoints.map((endpoint) => rowOf(endpoint, local)) });
    for (const { terminating, open, halfOpen } of endpoints) {
      if (!terminating || open === undefined) continue;
      this.#left.endpoints++;
      this.#left.open += open;
      this.#left.halfOpen += halfOpen ?? 0;
    }
  }

  lines(): string[] {
    const services = new Set(this.#blocks.map(({ port: { namespace, name } }) => `${namespace}/${name}`));
    const tables = services.size > 1 ? this.#oneTable() : this.#blocks.flatMap((block) => this.#tableOf(block));
    return [...tables, ...this.#leftLines()];
  }

  #oneTable(): string[] {
    const rows = this.#blocks.flatMap(({ port, rows: own }) => {
      const of = [serviceText(port), `${port.port}/${port.protocol}`];
      return own.map((row) => [...of, ...row]);
    });
    return rows.length === 0 ? [] : ["", ...this.#table(["SERVICE", "PORT", ...TITLES], rows)];
  }

  #tableOf({ port, rows }: Block): string[] {
    const { portName, port: number, protocol, family, state, reason } = port;
    const title = `${portName === "" ? "" : `${portName} `}${number}/${protocol} ${FAMILY_NAMES[family]}`;
    const indented = rows.map((row) => ["", ...row]);
    const asked = annotationTexts(port).map((text) => `${title}: ${text}`);
    const why = reason === undefined ? [] : [`${title}: ${state}: ${reason}`];
    return ["", ...why, ...asked, `${title}: endpoints`, ...this.#table(["", ...TITLES], indented)];
  }

  /** Formats a table without the columns that are empty in all rows. */
  #table(titles: readonly string[], rows: readonly (readonly string[])[]): string[] {
    const shown = titles.map((title, i) => title === "" || rows.some((row) => row[i] !== ""));
    const cells = rows.map((row) =>
      row.filter((_, i) => shown[i]).map((cell, i) => (cell === "" && i > 0 ? "-" : cell)),
    );
    return columns(this.#headers ? [titles.filter((_, i) => shown[i]), ...cells] : cells);
  }

  #leftLines(): string[] {
    const { endpoints, open, halfOpen } = this.#left;
    if (endpoints === 0 || !this.#headers) return [];
    const which = counted(endpoints, "terminating endpoint");
    return ["", `${which} with ${open} open and ${counted(halfOpen, "half-open connection")}`];
  }
}

/** Returns the cells, with "" for unknown or absent values. */
function rowOf(endpoint: EndpointStatus, hasLocalPolicy: boolean): string[] {
  const { address, port, pod = "", node = "", zone = "", local, connections, open, halfOpen } = endpoint;
  return [
    ...[withPort(address, port), pod, node, zone, hintText(endpoint), local ? "yes" : "no", stateText(endpoint)],
    shareText(endpoint.clusterShare),
    hasLocalPolicy ? shareText(endpoint.localShare) : "",
    ...[connections, open, halfOpen].map((count) => (count === undefined ? "" : String(count))),
  ];
}

/** Returns text such as "zone=a,zone=b". */
function hintText({ forNodes = [], forZones = [] }: EndpointStatus): string {
  return [...forNodes.map((name) => `node=${name}`), ...forZones.map((name) => `zone=${name}`)].join();
}

const CONDITIONS = ["ready", "serving", "terminating", "draining"] as const;
/** Cache of the text by set of conditions: a listing of all endpoints needs it a hundred thousand times. */
const STATES = Array.from({ length: 1 << CONDITIONS.length }, (_, set) => {
  const words = CONDITIONS.filter((_, bit) => (set & (1 << bit)) !== 0);
  return words.join() || "not ready";
});

/** Returns the endpoint's true conditions: "ready,serving". */
function stateText(endpoint: EndpointStatus): string {
  let set = 0;
  for (const [bit, condition] of CONDITIONS.entries()) if (endpoint[condition] === true) set |= 1 << bit;
  return STATES[set];
}

function shareText(of: number): string {
  return of === 0 ? "-" : `${(of * 100).toFixed(of < 0.1 ? 1 : 0)} %`;
}
