/** The services that the table shows: one row per service port, with both families in it. */
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import {
  compareServices,
  type ServicePortStatus,
  type ServiceState,
  serviceText,
  type StatusProblem,
} from "../../../observe/status-report.js";
import {
  type PageServices,
  type PageUpdate,
  type PortCounts,
  portKey,
  refusedAndDropped,
  type ServiceChange,
} from "../page-update.js";
import { addressesOf, withPort } from "./texts.js";

/** Number of samples in a row's sparkline. */
export const SPARK_SAMPLES = 30;
/** Worst first. */
const STATES: readonly ServiceState[] = [
  "quarantined",
  "shadowed",
  "pending",
  "rejected",
  "no-local-endpoint",
  "active",
];

export interface Row {
  /** Unique. */
  readonly key: string;
  /** "namespace/name". */
  readonly service: string;
  /** "namespace/name:port". */
  readonly title: string;
  /** IPv4 first. */
  readonly ports: readonly ServicePortStatus[];
  readonly state: ServiceState;
  /** The searchable words, in lower case, with a space before and after each. */
  readonly text: string;
}

/** Numbers of a row, which change more often than the row. */
export interface RowNumbers {
  /** Undefined if connections are not counted. */
  readonly connections: number | undefined;
  readonly refused: number;
  readonly dropped: number;
  /** Per second. */
  readonly rate: number;
  readonly refusedRate: number;
  readonly droppedRate: number;
}

/** Connections per second, and those refused or dropped, oldest first. */
export interface Spark {
  readonly served: number[];
  readonly failed: number[];
}

export class ServiceRows {
  /** By service. */
  #services = new Map<string, readonly Row[]>();
  /** Services of a list that has not arrived completely. */
  #list: ServicePortStatus[] | undefined;
  /** By `portKey`. */
  #counts = new Map<string, PortCounts>();
  #busy: readonly string[] = [];
  readonly #sparks = new Map<string, Spark>();
  #rows: readonly Row[] | undefined;
  /** Whether a complete list has arrived. */
  complete = false;
  /** Whether the daemon counts connections and refusals. */
  counted = true;

  /** All rows, by name. */
  get rows(): readonly Row[] {
    return (this.#rows ??= [...this.#services.values()].flat());
  }

  has(service: string): boolean {
    return this.#services.has(service);
  }

  of(service: string): readonly Row[] {
    return this.#services.get(service) ?? [];
  }

  spark(row: Row): Spark | undefined {
    return this.#sparks.get(row.key);
  }

  /** The first part of a list is shown at once, and the complete list replaces all earlier services. */
  add({ items, first, last }: PageServices): void {
    if (first) this.#list = [];
    const list = this.#list ?? [];
    list.push(...items);
    const isFirstList = this.#services.size === 0 || !this.complete;
    if (last) {
      this.#counts.clear();
      this.#services = servicesOf(list);
      this.#list = undefined;
      this.complete = true;
    } else if (isFirstList) {
      for (const [service, rows] of servicesOf(items)) {
        // A piece may end between two ports of a service.
        const ports = [
          ...(this.#services.get(service) ?? []).flatMap((row) => row.ports),
          ...rows.flatMap((row) => row.ports),
        ];
        this.#services.set(service, rowsOf(ports));
      }
    }
    this.#rows = undefined;
  }

  update({ changed, counts, traffic }: PageUpdate): void {
    this.counted = traffic !== undefined;
    if (changed.length > 0) this.#change(changed);
    if (counts !== undefined) this.#count(counts);
  }

  #change(changed: readonly ServiceChange[]): void {
    let isNew = false;
    for (const { service, ports } of changed) {
      isNew ||= !this.#services.has(service);
      this.#forgetCounts(service, ports);
      if (ports.length === 0) this.#services.delete(service);
      else this.#services.set(service, rowsOf(ports));
    }
    if (isNew) {
      this.#services = new Map([...this.#services].toSorted(([a], [b]) => compareServices(a, b)));
    }
    this.#rows = undefined;
  }

  /** A port that is removed and returns counts from zero. */
  #forgetCounts(service: string, ports: readonly ServicePortStatus[]): void {
    const kept = new Set(ports.map(portKey));
    const former = this.of(service).flatMap((row) => row.ports.map(portKey));
    for (const key of former) if (!kept.has(key)) this.#counts.delete(key);
  }

  #count(counts: readonly PortCounts[]): void {
    for (const key of this.#busy) {
      const last = this.#counts.get(key);
      if (last !== undefined) this.#counts.set(key, { ...last, connectionsPerSecond: 0, refused: 0, dropped: 0 });
    }
    this.#busy = counts.map(({ key }) => key);
    const sums = new Map<string, { served: number; failed: number }>();
    for (const port of counts) {
      this.#counts.set(port.key, port);
      const row = port.key.slice(port.key.indexOf(" ") + 1);
      const sum = sums.get(row) ?? { served: 0, failed: 0 };
      sum.served += port.connectionsPerSecond ?? 0;
      sum.failed += port.refused + port.dropped;
      if (sum.served + sum.failed > 0) sums.set(row, sum);
    }
    for (const key of sums.keys()) {
      const nothing = (): number[] => Array<number>(SPARK_SAMPLES).fill(0);
      if (!this.#sparks.has(key)) this.#sparks.set(key, { served: nothing(), failed: nothing() });
    }
    for (const [key, { served, failed }] of this.#sparks) {
      const sum = sums.get(key);
      served.push(sum?.served ?? 0);
      failed.push(sum?.failed ?? 0);
      served.shift();
      failed.shift();
      if ([...served, ...failed].every((value) => value === 0)) this.#sparks.delete(key);
    }
  }

  numbers({ ports }: Row): RowNumbers {
    const sum = { connections: undefined as number | undefined, refused: 0, dropped: 0 };
    const rates = { rate: 0, refusedRate: 0, droppedRate: 0 };
    for (const port of ports) {
      const counts = this.#counts.get(portKey(port));
      const { connections } = counts ?? port;
      if (connections !== undefined) sum.connections = (sum.connections ?? 0) + connections;
      const { refused, dropped } = refusedAndDropped({ ...port, refusals: (counts ?? port).refusals });
      sum.refused += refused;
      sum.dropped += dropped;
      rates.rate += counts?.connectionsPerSecond ?? 0;
      rates.refusedRate += counts?.refused ?? 0;
      rates.droppedRate += counts?.dropped ?? 0;
    }
    return { ...sum, ...rates };
  }
}

function servicesOf(items: readonly ServicePortStatus[]): Map<string, readonly Row[]> {
  const ports = Map.groupBy(items, ({ namespace, name }) => `${namespace}/${name}`);
  return new Map(Array.from(ports, ([service, all]) => [service, rowsOf(all)]));
}

function rowsOf(all: readonly ServicePortStatus[]): readonly Row[] {
  const byPort = Map.groupBy(all, (port) => portKey({ ...port, family: "ip" }));
  return Array.from(byPort, ([key, ports]) => rowOf(key.slice(key.indexOf(" ") + 1), ports));
}

function rowOf(key: string, ports: readonly ServicePortStatus[]): Row {
  const [first] = ports;
  const state = STATES.find((each) => ports.some((port) => port.state === each)) ?? "active";
  const words = ports.flatMap((port) => {
    const { protocol, nodePort } = port;
    const all = addressesOf(port);
    return [
      ...all,
      ...all.map((address) => withPort(address, port.port)),
      ...[port.port, `${port.port}/${protocol}`, protocol, FAMILY_NAMES[port.family], port.state],
      ...(nodePort === 0 ? [] : [nodePort, `${nodePort}/${protocol}`]),
    ];
  });
  const title = serviceText(first);
  return {
    ...{ key, service: `${first.namespace}/${first.name}`, title, ports, state },
    text: ` ${[...new Set([title, first.name, ...words])].join("  ").toLowerCase()} `,
  };
}

/** The problems that concern a row, or one port and family of it. */
export type ProblemsOf = (row: Pick<Row, "service" | "ports">) => readonly StatusProblem[];

/** Each row must not visit all problems, because there may be many rows. */
export function problemsIn(problems: readonly StatusProblem[]): ProblemsOf {
  const concerns = problems.flatMap((problem) => (problem.concerns ?? []).map((of) => ({ problem, of })));
  const byService = Map.groupBy(concerns, ({ of }) => of.service);
  return ({ service, ports }) =>
    (byService.get(service) ?? [])
      .filter(({ of }) => ports.some((port) => portKey({ ...port, ...of }) === portKey(port)))
      .map(({ problem }) => problem);
}

/** The order of states, worst first. */
export function severity({ state }: Row): number {
  return STATES.indexOf(state);
}

/**
 * Returns the rows that have every word, or whose service has an endpoint with it.
 * @param endpoints by word.
 */
export function search(
  rows: readonly Row[],
  words: readonly string[],
  endpoints: ReadonlyMap<string, { readonly services: ReadonlySet<string> }>,
): readonly Row[] {
  return words.reduce((left, word) => {
    // 10.0.0.1 is not 10.0.0.10, unless only the latter exists.
    const exact = rows.some(({ text }) => text.includes(` ${word} `)) && /^[\d.:/[\]a-f]+$|\//.test(word);
    const wanted = exact ? ` ${word} ` : word;
    const found = endpoints.get(word);
    return left.filter(({ text, service }) => text.includes(wanted) || found?.services.has(service) === true);
  }, rows);
}
