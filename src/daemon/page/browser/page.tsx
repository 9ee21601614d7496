/** The browser's part of the status page. Shows the messages of /status/stream while the page is visible. */
import { render, type VNode } from "preact";
import { counted } from "../../../base/counted.js";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { percentText } from "../../../base/percent.js";
import { printable } from "../../../base/printable.js";
import type { StatusEvent, StatusReport } from "../../../observe/status-report.js";
import type { PageFound, PageMessage, PageServices, PageUpdate, TrafficSample } from "../page-update.js";
import { ExplainForm } from "./explain-form.js";
import { Marked } from "./marked.js";
import { ask, reasonOf } from "./requests.js";
import { ServiceDetail } from "./service-detail.js";
import { problemsIn, search, ServiceRows } from "./service-rows.js";
import { ServiceTable } from "./service-table.js";
import { Stream } from "./stream.js";
import { clock, date, duration } from "./texts.js";
import { RANGE_MS, SparklineLegend, TrafficCharts } from "./traffic-chart.js";
import { WriteHistoryView, WritePlot } from "./write-plot.js";

/** Pause in typing after which the daemon searches endpoints, ms. */
const TYPING_MS = 300;
/** A shorter word would match the endpoints of most services. */
const LEAST_LETTERS = 3;
/** Maximum number of words for which the daemon searches endpoints. */
const MOST_WORDS = 5;
/** Age at which a search is repeated, because endpoints change, ms. */
const FOUND_MS = 10_000;

/** Services with an endpoint that has a word. */
interface FoundServices {
  /** Time of the search, as `performance.now()` returns it. */
  readonly at: number;
  readonly services: ReadonlySet<string>;
  /** Whether there may be more. */
  readonly more: boolean;
  /** Why the last search failed. */
  readonly error?: string;
}

/** @param before result of an earlier search, which stays if this one fails. */
async function servicesWith(word: string, before: FoundServices | undefined): Promise<FoundServices> {
  // An address may come with a port.
  const text = /^\[?([0-9a-f.:]+?)\]?:\d+$/.exec(word)?.[1] ?? word;
  try {
    const answer = await ask<PageFound>(`/status/v1/find?text=${encodeURIComponent(text)}`);
    return { at: performance.now(), services: new Set(answer?.services), more: answer?.more === true };
  } catch (error) {
    const { services = new Set<string>(), more = false } = before ?? {};
    return { at: performance.now(), services, more, error: reasonOf(error) };
  }
}

class Page {
  readonly #services = new ServiceRows();
  readonly #writes = new WriteHistoryView();
  #update: PageUpdate | undefined;
  #samples: readonly TrafficSample[] = [];
  #events: readonly StatusEvent[] = [];
  /** Why the content may be outdated. */
  #lost: string | undefined;
  /** Changes when a selected service may have changed. */
  #version = 0;
  #showsWrites = false;
  #onlyProblems = false;
  /** The search and the service in the URL. */
  #query = "";
  #selected = "";
  /** By word of the search. */
  readonly #found = new Map<string, FoundServices>();
  #isSearching = false;
  #typing: ReturnType<typeof setTimeout> | undefined;

  start(): void {
    addEventListener("hashchange", () => this.#readUrl());
    addEventListener("keydown", (event) => this.#key(event));
    this.#readUrl();
    new Stream({
      message: (message) => this.#take(message),
      lost: (reason) => {
        this.#lost = reason;
        this.#render();
      },
    }).follow();
  }

  #take(message: PageMessage): void {
    this.#lost = undefined;
    if ("id" in message) this.#takeUpdate(message);
    else this.#takeServices(message);
    this.#render();
  }

  #takeServices(message: PageServices): void {
    this.#services.add(message);
    // The daemon does not say which services differ from an earlier list.
    if (message.last) this.#version++;
  }

  #takeUpdate(update: PageUpdate): void {
    const { now, status, events, traffic, writes, changed, counts } = update;
    const told = this.#toldOf(this.#selected);
    this.#update = update;
    this.#services.update(update);
    this.#events = events ?? this.#events;
    const known = this.#samples.at(-1)?.at ?? 0;
    const later = (traffic ?? []).filter(({ at }) => at > known);
    this.#samples = [...this.#samples, ...later].filter(({ at }) => at > now - RANGE_MS);
    this.#writes.add(now, writes, Math.max(0, ...status.families.map(({ pendingMs }) => pendingMs)));
    const isSelected = (of: string): boolean => of.endsWith(` ${this.#selected}`);
    const isChanged = changed.some(({ service }) => service === this.#selected);
    const isTold = this.#toldOf(this.#selected) !== told;
    if (isTold || isChanged || counts?.some(({ key }) => isSelected(key)) === true) this.#version++;
    document.title = printable(`${status.nodeName} · nft-proxier`);
    if (this.#typing === undefined) void this.#findEndpoints();
  }

  /** The problems that concern a service, as a text to compare. */
  #toldOf(service: string): string {
    const problems = this.#update?.status.problems ?? [];
    return JSON.stringify(problems.filter(({ concerns = [] }) => concerns.some((one) => one.service === service)));
  }

  #readUrl(): void {
    const url = new URLSearchParams(location.hash.slice(1));
    this.#selected = url.get("service") ?? "";
    this.#query = url.get("q") ?? "";
    void this.#findEndpoints();
    this.#render();
  }

  #urlOf(query: string, service: string): string {
    const entries = Object.entries({ q: query, service }).filter(([, value]) => value !== "");
    return `#${new URLSearchParams(entries).toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}`;
  }

  readonly #search = (event: Event): void => {
    this.#query = (event.currentTarget as HTMLInputElement).value;
    history.replaceState(null, "", this.#urlOf(this.#query, this.#selected));
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => {
      this.#typing = undefined;
      void this.#findEndpoints();
    }, TYPING_MS);
    this.#render();
  };

  get #words(): readonly string[] {
    return this.#query.toLowerCase().split(/\s+/).filter(Boolean);
  }

  /** The page does not have the endpoints of all services, so the daemon searches them, for one word at a time. */
  async #findEndpoints(): Promise<void> {
    if (this.#isSearching) return;
    this.#isSearching = true;
    for (const word of this.#found.keys()) if (!this.#words.includes(word)) this.#found.delete(word);
    for (let word = this.#nextWord(); word !== undefined; word = this.#nextWord()) {
      this.#found.set(word, await servicesWith(word, this.#found.get(word)));
      this.#render();
    }
    this.#isSearching = false;
  }

  /** The words for which the daemon searches endpoints. */
  get #endpointWords(): readonly string[] {
    return this.#words.filter((word) => word.length >= LEAST_LETTERS).slice(0, MOST_WORDS);
  }

  /** Returns a word that has not been searched, or not lately. */
  #nextWord(): string | undefined {
    const isDue = (word: string): boolean => (this.#found.get(word)?.at ?? -Infinity) < performance.now() - FOUND_MS;
    return this.#endpointWords.find(isDue);
  }

  get #awaitsSearch(): boolean {
    return this.#endpointWords.some((word) => !this.#found.has(word));
  }

  readonly #close = (): void => {
    const former = this.#selected;
    location.hash = this.#urlOf(this.#query, "");
    const row = CSS.escape(former);
    document.querySelector<HTMLElement>(`[data-row="${row}"] a, [data-row^="${row}:"] a`)?.focus();
  };

  #key(event: KeyboardEvent): void {
    if (event.key === "Escape" && this.#selected !== "") this.#close();
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key !== "/" || isTyping) return;
    event.preventDefault();
    document.getElementById("search")?.focus();
  }

  #render(): void {
    const root = document.getElementById("page");
    if (root !== null) render(this.#view(), root);
  }

  #view(): VNode {
    const update = this.#update;
    const status = update?.status;
    return (
      <>
        <header>
          <h1 id="node">{printable(status?.nodeName ?? "nft-proxier")}</h1>
          {this.#health(status)}
          <span id="about" class="quiet">
            {update !== undefined &&
              printable(
                `nft-proxier ${update.status.version}, Linux ${update.status.kernel}, up ${duration(update.status.uptimeMs)}, node time ${clock(update.now)}`,
              )}
          </span>
        </header>
        {this.#lost !== undefined && update !== undefined && (
          <p id="outdated" class="bad">{`Everything below is as of ${clock(update.now)}.`}</p>
        )}
        <main id="main" class={this.#lost === undefined ? "" : "away"}>
          {status !== undefined && this.#problems(status)}
          {status?.notes !== undefined && (
            <section id="notes" aria-label="Under way">
              {status.notes.map((note) => (
                <p key={note}>
                  <span class="quiet">under way</span> <Marked text={note} />
                </p>
              ))}
            </section>
          )}
          {update !== undefined && (
            <section aria-label="Traffic">
              {update.traffic === undefined ? (
                <p class="quiet">Connections are not counted: the daemon runs with --service-counters off.</p>
              ) : (
                <TrafficCharts samples={this.#samples} now={update.now} />
              )}
            </section>
          )}
          {this.#serviceSection(status)}
          <ExplainForm />
          <section aria-labelledby="events-title">
            <h2 id="events-title">Events</h2>
            <ol id="events">
              {this.#events.length === 0 && <li class="quiet">none since startup</li>}
              {this.#events.toReversed().map(({ at, type, message }, i) => (
                <li key={this.#events.length - i}>
                  <time>{date(at)}</time>
                  <span class={type === "warning" ? "warn" : ""}>
                    <Marked text={message} />
                  </span>
                </li>
              ))}
            </ol>
          </section>
          {status !== undefined && this.#facts(status, update?.now ?? 0)}
        </main>
      </>
    );
  }

  #health(status: StatusReport | undefined): VNode {
    const problems = status?.problems.length ?? 0;
    const [text, tone] =
      this.#lost !== undefined
        ? [this.#lost, "bad"]
        : status === undefined
          ? ["connecting", "quiet"]
          : problems > 0
            ? [counted(problems, "problem"), "bad"]
            : status.healthy
              ? ["healthy", "good"]
              : ["changes pending", "bad"];
    return (
      <span id="health" class={`pill ${tone}`} role="status">
        {text}
      </span>
    );
  }

  #problems({ problems }: StatusReport): VNode | false {
    return (
      problems.length > 0 && (
        <section id="problems" aria-label="Problems">
          {problems.map(({ what, remedy }) => (
            <p key={what}>
              <span class="bad">
                <Marked text={what} linkTo={this.#linkTo} />
              </span>
              <span class="quiet">
                <Marked text={remedy} />
              </span>
            </p>
          ))}
        </section>
      )
    );
  }

  readonly #linkTo = (service: string): string | undefined =>
    this.#services.has(service) ? this.#urlOf(this.#query, service) : undefined;

  #serviceSection(status: StatusReport | undefined): VNode {
    const problemsOf = problemsIn(status?.problems ?? []);
    const all = this.#services.rows;
    const troubled = all.filter((row) => row.state !== "active" || problemsOf(row).length > 0);
    const rows = search(this.#onlyProblems ? troubled : all, this.#words, this.#found);
    const found = [...this.#found.values()];
    const searchError = found.find(({ error }) => error !== undefined)?.error;
    const isEarly = status?.families.every(({ inForce }) => !inForce) ?? false;
    const of = counted(all.length, "service port");
    const none = this.#awaitsSearch ? "searching endpoints…" : `no match among ${of}`;
    const shown = rows.length === all.length ? of : rows.length === 0 ? none : `${rows.length} of ${of}`;
    return (
      <section aria-labelledby="services-title" class={this.#selected === "" ? "" : "split"}>
        <div class="bar">
          <h2 id="services-title">
            Services{" "}
            <span class="quiet" id="shown" role="status">
              {this.#services.complete ? shown : isEarly ? "unknown until the first write" : "loading…"}
              {found.some(({ more }) => more) && "; endpoints match more services than are shown"}
              {searchError !== undefined && `; endpoints were not searched: ${searchError}`}
            </span>
          </h2>
          {this.#services.counted && <SparklineLegend />}
          <button
            type="button"
            id="only-problems"
            aria-pressed={this.#onlyProblems}
            onClick={() => {
              this.#onlyProblems = !this.#onlyProblems;
              this.#render();
            }}
          >
            {counted(troubled.length, "needs attention", "need attention")}
          </button>
          <input
            id="search"
            type="search"
            value={this.#query}
            onInput={this.#search}
            placeholder="name, address, port, pod, 80/tcp, ipv6"
            aria-label="Search services (key /)"
          />
        </div>
        <div class="columns">
          <ServiceTable
            services={this.#services}
            rows={rows}
            problemsOf={problemsOf}
            selected={this.#selected}
            linkTo={(service) => this.#urlOf(this.#query, service === this.#selected ? "" : service)}
          />
          {this.#selected !== "" && (
            <ServiceDetail
              service={this.#selected}
              version={this.#version}
              problemsOf={problemsOf}
              onClose={this.#close}
            />
          )}
        </div>
      </section>
    );
  }

  #facts({ families, lastRepair, api, conntrack, pendingServices }: StatusReport, now: number): VNode {
    const facts = families.flatMap(({ family, services, endpoints, inForce, kernelEntries }): [string, string][] => {
      const name = FAMILY_NAMES[family];
      if (kernelEntries !== undefined) {
        return [[`${name} VIPs and node ports of an earlier run, in the kernel`, kernelEntries.toLocaleString("en")]];
      }
      return [
        [`${name} services${inForce ? "" : " (not active)"}`, services.toLocaleString("en")],
        [`${name} endpoints`, endpoints.toLocaleString("en")],
      ];
    });
    facts.push(["services with a pending change", pendingServices.toLocaleString("en")]);
    facts.push(["last repair", lastRepair === undefined ? "none" : `${duration(now - lastRepair.at)} ago`]);
    if (api !== undefined) facts.push(["API server", api.connected ? "connected" : "not connected"]);
    if (conntrack !== undefined) {
      const fill = percentText(conntrack.entries, conntrack.max);
      facts.push([`of ${conntrack.max.toLocaleString("en")} connections tracked`, fill]);
    }
    return (
      <section aria-label="This node">
        <dl id="tiles">
          {facts.map(([title, value]) => (
            <div key={title}>
              <dt>{title}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
        <details
          id="writes"
          onToggle={(event) => {
            this.#showsWrites = event.currentTarget.open;
            this.#render();
          }}
        >
          <summary>Writes to the kernel</summary>
          {this.#showsWrites && <WritePlot history={this.#writes} now={now} />}
        </details>
      </section>
    );
  }
}

new Page().start();
