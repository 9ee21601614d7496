/** The table of services. Only visible rows exist, so thousands of services cost as little as a screenful. */
import { counted } from "../../../base/counted.js";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { printable } from "../../../base/printable.js";
import { annotationTexts } from "../../answers/annotation-text.js";
import {
  compareServices,
  type EndpointStatus,
  type ServiceList,
  type ServicePortStatus,
  serviceText,
  type ServiceState,
} from "../../../observe/status-report.js";
import { ask, byId, inputById, make, reasonOf, setText, withPort } from "./dom.js";

interface Row {
  readonly service: ServicePortStatus;
  /** The searchable text, in lower case. */
  readonly text: string;
}

interface Column {
  readonly title: string;
  readonly classes: string;
  readonly of: (service: ServicePortStatus) => string;
  /** The sort key. Default: the text. */
  readonly by?: (service: ServicePortStatus) => number;
}

const STATES: readonly ServiceState[] = [
  "quarantined",
  "shadowed",
  "pending",
  "rejected",
  "no-local-endpoint",
  "active",
];
/** Sorted as in the daemon's list, which also has the ports of each service in order. */
const SERVICE = "Service";
const COLUMNS: readonly Column[] = [
  { title: SERVICE, classes: "", of: serviceText },
  { title: "Address", classes: "wide", of: addressOf },
  { title: "Protocol", classes: "wide", of: ({ protocol }) => protocol },
  {
    title: "Node port",
    classes: "wide number",
    of: ({ nodePort }) => (nodePort === 0 ? "" : String(nodePort)),
    by: ({ nodePort }) => nodePort,
  },
  {
    title: "Ready",
    classes: "number",
    of: ({ ready, total }) => `${ready}/${total}`,
    by: ({ ready }) => ready,
  },
  {
    title: "Connections",
    classes: "wide number",
    of: connectionsOf,
    by: ({ connectionsPerSecond = 0, connections = 0 }) => connectionsPerSecond * 1e12 + connections,
  },
  { title: "State", classes: "", of: ({ state }) => state, by: ({ state }) => STATES.indexOf(state) },
];
const COLOURS: Readonly<Record<ServiceState, string>> = {
  active: "good",
  pending: "warn",
  rejected: "warn",
  "no-local-endpoint": "warn",
  shadowed: "bad",
  quarantined: "bad",
};
/** Rows above and below the visible ones, so that scrolling shows no gap. */
const SPARE_ROWS = 10;

export class ServiceTable {
  #rows: readonly Row[] = [];
  #shown: readonly Row[] = [];
  #sortedBy = 0;
  #descending = false;
  #selected: string | undefined;

  constructor() {
    byId("titles").append(
      ...COLUMNS.map(({ title, classes }, index) => {
        const button = make("button", classes, title);
        button.addEventListener("click", () => this.#sort(index));
        return button;
      }),
    );
    byId("search").addEventListener("input", () => this.#filter());
    byId("scroller").addEventListener("scroll", () => this.#draw(), { passive: true });
    addEventListener("resize", () => this.#draw());
  }

  /** Whether connections are counted for any service. */
  get counted(): boolean {
    return this.#rows.some(({ service }) => service.connections !== undefined);
  }

  /** Rejects if the daemon does not answer. */
  async load(): Promise<void> {
    const list = await listOf("/status/v1/services");
    this.#rows = (list?.items ?? []).map((service) => ({
      service,
      text: [serviceText(service), addressOf(service), service.protocol, service.nodePort, service.state]
        .join(" ")
        .toLowerCase(),
    }));
    this.#filter();
    if (this.#selected !== undefined) await this.#describe(this.#selected);
  }

  #sort(column: number): void {
    this.#descending = column === this.#sortedBy && !this.#descending;
    this.#sortedBy = column;
    this.#filter();
  }

  #filter(): void {
    const words = inputById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.#rows.filter(({ text }) => words.every((word) => text.includes(word)));
    const order = orderOf(COLUMNS[this.#sortedBy]);
    const sign = this.#descending ? -1 : 1;
    found.sort((a, b) => sign * order(a.service, b.service));
    this.#shown = found;
    const all = counted(this.#rows.length, "service port");
    setText("shown", found.length === this.#rows.length ? all : `${found.length} of ${all}`);
    for (const [index, title] of [...byId("titles").children].entries()) {
      const mark = index === this.#sortedBy ? (this.#descending ? " ↓" : " ↑") : "";
      title.textContent = `${COLUMNS[index]?.title}${mark}`;
    }
    this.#draw();
  }

  #draw(): void {
    const scroller = byId("scroller");
    const height = byId("titles").offsetHeight;
    const rows = byId("rows");
    rows.style.height = `${this.#shown.length * height}px`;
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - SPARE_ROWS);
    const count = Math.ceil(scroller.clientHeight / height) + 2 * SPARE_ROWS;
    rows.replaceChildren(
      ...this.#shown.slice(first, first + count).map(({ service }, at) => this.#row(service, (first + at) * height)),
    );
  }

  #row(service: ServicePortStatus, top: number): HTMLElement {
    const cells = COLUMNS.map(({ of, classes, title }) =>
      make("span", title === "State" ? COLOURS[service.state] : classes, of(service)),
    );
    const row = make("button", "row", ...cells);
    row.style.top = `${top}px`;
    row.title = printable(service.reason ?? serviceText(service));
    const name = nameOf(service);
    row.setAttribute("role", "row");
    row.setAttribute("aria-selected", String(name === this.#selected));
    row.addEventListener("click", () => {
      this.#selected = name === this.#selected ? undefined : name;
      this.#draw();
      if (this.#selected === undefined) byId("detail").hidden = true;
      else void this.#describe(name);
    });
    return row;
  }

  async #describe(name: string): Promise<void> {
    const detail = byId("detail");
    const path = name.split("/").map(encodeURIComponent).join("/");
    const content = await listOf(`/status/v1/services/${path}`).then(
      (list) =>
        list === undefined ? [make("p", "quiet", `${name} is no longer served`)] : list.items.flatMap(portDetails),
      (error: unknown) => [make("p", "quiet", reasonOf(error))],
    );
    if (this.#selected !== name) return;
    detail.hidden = false;
    detail.replaceChildren(...content);
  }
}

function nameOf({ namespace, name }: ServicePortStatus): string {
  return `${namespace}/${name}`;
}

function orderOf({ title, by, of }: Column): (a: ServicePortStatus, b: ServicePortStatus) => number {
  if (title === SERVICE) return (a, b) => compareServices(nameOf(a), nameOf(b));
  if (by !== undefined) return (a, b) => by(a) - by(b);
  const { compare } = new Intl.Collator("en", { numeric: true });
  return (a, b) => compare(of(a), of(b));
}

/** Resolves to undefined if there is no such path. Rejects if the daemon does not answer, or with the reason that it gives. */
async function listOf(path: string): Promise<ServiceList | undefined> {
  const response = await ask(path);
  if (response.status === 404) return undefined;
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as ServiceList;
}

function addressOf({ clusterIP, externalIPs, loadBalancerIPs, port }: ServicePortStatus): string {
  const [first] = [...(clusterIP === undefined ? [] : [clusterIP]), ...loadBalancerIPs, ...externalIPs];
  return first === undefined ? "" : withPort(first, port);
}

/** Returns text such as "1,204 (3.1/s)", or "" if connections are not counted. */
function connectionsOf({ connections, connectionsPerSecond = 0 }: ServicePortStatus): string {
  if (connections === undefined) return "";
  const rate =
    connectionsPerSecond === 0 ? "" : ` (${connectionsPerSecond.toFixed(connectionsPerSecond < 10 ? 1 : 0)}/s)`;
  return `${connections.toLocaleString()}${rate}`;
}

function portDetails(service: ServicePortStatus): HTMLElement[] {
  const { family, port, protocol, reason, externalIPs, loadBalancerIPs, endpoints = [] } = service;
  const facts = [
    FAMILY_NAMES[family],
    addressOf(service) || `port ${port}`,
    protocol,
    ...(externalIPs.length + loadBalancerIPs.length > 0
      ? [`also ${[...loadBalancerIPs, ...externalIPs].join(", ")}`]
      : []),
    `internal ${service.internalTrafficPolicy}, external ${service.externalTrafficPolicy}`,
    ...(service.affinitySeconds > 0 ? [`affinity ${service.affinitySeconds}s`] : []),
    ...annotationTexts(service).map(([name, text]) => `${name}: ${text}`),
    ...(reason === undefined ? [] : [reason]),
  ];
  return [
    make("h3", "", serviceText(service)),
    make("p", "quiet", facts.join(" · ")),
    ...endpoints.map((endpoint) => endpointLine(service, endpoint)),
  ];
}

const percent = (share: number): string => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

/** An endpoint's shares of new connections from inside and outside the cluster. */
function sharesOf(
  service: ServicePortStatus,
  { clusterShare, localShare }: EndpointStatus,
): Record<"internal" | "external", number> {
  const under = (policy: string): number => (policy === "Local" ? localShare : clusterShare);
  return { internal: under(service.internalTrafficPolicy), external: under(service.externalTrafficPolicy) };
}

function endpointLine(service: ServicePortStatus, endpoint: EndpointStatus): HTMLElement {
  const { internal, external } = sharesOf(service, endpoint);
  const bar = make("i");
  bar.style.width = `${100 * internal}%`;
  const { pod, node, zone, ready, serving, terminating } = endpoint;
  const takesTraffic = ready || serving;
  const words = [
    internal === external
      ? `${percent(internal)} of new connections`
      : `${percent(internal)} of internal and ${percent(external)} of external new connections`,
    ...(endpoint.connections === undefined
      ? []
      : [
          `${endpoint.connections.toLocaleString()} ${endpoint.connections === 1 ? "connection" : "connections"} so far`,
        ]),
    ...(pod === undefined ? [] : [pod]),
    ...(node === undefined ? [] : [endpoint.local ? `${node} (this node)` : node]),
    ...(node === undefined && endpoint.local ? ["on this node"] : []),
    ...(zone === undefined ? [] : [zone]),
    ...(terminating ? [serving ? "terminating" : "terminating, not serving"] : ready ? [] : ["not ready"]),
  ];
  return make(
    "div",
    "endpoint",
    make("span", takesTraffic ? "" : "quiet", withPort(endpoint.address, endpoint.port)),
    make("span", "share", bar),
    make("span", "quiet", words.join(", ")),
  );
}
