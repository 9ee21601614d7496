/** The browser's part of the status page. Shows the updates from /status/stream while the page is visible. */
import { counted } from "../../../base/counted.js";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { percentText } from "../../../base/percent.js";
import type { StatusEvent, StatusReport } from "../../../observe/status-report.js";
import type { PageExplanation, PageUpdate } from "../page-update.js";
import { printable } from "../../../base/printable.js";
import { ask, AWAY, byId, duration, inputById, make, reasonOf, setText } from "./dom.js";
import { clock, Plot } from "./plot.js";
import { ServiceTable } from "./service-table.js";

/** Minimum time between two loads of all services. */
const SERVICES_MS = 10_000;
/** Silence after which the daemon counts as away: it sends an update every 2 s. */
const SILENT_MS = 10_000;
/** Time until a refused page asks again. */
const REFUSED_MS = 5_000;

const plot = new Plot();
const services = new ServiceTable();
let servicesAt = -Infinity;
let loading = false;
/** The part of the status that changes with the services, as of their last load. */
let servicesMark = "";
let source: EventSource | undefined;
let silence: ReturnType<typeof setTimeout> | undefined;

function say(text: string, colour: string): void {
  const pill = byId("health");
  pill.textContent = printable(text);
  pill.className = `pill ${colour}`;
}

function show(update: PageUpdate): void {
  const { now, status } = update;
  const problems = status.problems.length;
  if (problems > 0) say(counted(problems, "problem"), "bad");
  else say(status.healthy ? "healthy" : "changes pending", status.healthy ? "good" : "bad");
  byId("main").classList.remove("away");
  setText("node", status.nodeName);
  document.title = printable(`${status.nodeName} · nft-proxier`);
  setText(
    "about",
    `nft-proxier ${status.version}, Linux ${status.kernel}, up ${duration(status.uptimeMs)}, node time ${clock(now)}`,
  );
  showProblems(status);
  showNotes(status);
  showTiles(status, now);
  const waiting = Math.max(0, ...status.families.map(({ pendingMs }) => pendingMs));
  plot.add(now, update.writes, waiting);
  byId("plot").replaceChildren(plot.draw(now));
  setText("plot-range", plot.summary());
  if (update.events !== undefined) showEvents(update.events);
  const mark = JSON.stringify([status.families.map(({ pendingMs: _, ...rest }) => rest), update.writes.at(-1)]);
  if (mark !== servicesMark || services.counted) loadServices(mark);
}

/** The mark does not change with the counts of connections. If these are counted, the caller loads the services even if the mark is unchanged. */
function loadServices(mark: string): void {
  if (loading || performance.now() - servicesAt < SERVICES_MS) return;
  servicesAt = performance.now();
  loading = true;
  services
    .load()
    .then(
      () => (servicesMark = mark),
      (error: unknown) => setText("shown", reasonOf(error)),
    )
    .finally(() => (loading = false));
}

function showProblems({ problems }: StatusReport): void {
  const section = byId("problems");
  section.hidden = problems.length === 0;
  section.replaceChildren(
    ...problems.map(({ what, remedy }) => make("p", "", make("span", "bad", what), make("span", "quiet", remedy))),
  );
}

/** Shows work in progress that needs no action, like the `status` command. */
function showNotes({ notes = [] }: StatusReport): void {
  const section = byId("notes");
  section.hidden = notes.length === 0;
  section.replaceChildren(...notes.map((note) => make("p", "", make("span", "quiet", "under way "), note)));
}

function showTiles({ families, lastRepair, api, conntrack }: StatusReport, now: number): void {
  const tiles: [string, string][] = families.flatMap(
    ({ family, services: count, endpoints, inForce, kernelEntries }) => {
      const name = FAMILY_NAMES[family];
      if (kernelEntries !== undefined) {
        return [[`${name} VIPs and node ports of an earlier run, in the kernel`, kernelEntries.toLocaleString()]];
      }
      return [
        [`${name} services${inForce ? "" : " (not active)"}`, count.toLocaleString()],
        [`${name} endpoints`, endpoints.toLocaleString()],
      ];
    },
  );
  tiles.push(["oldest pending change", duration(Math.max(0, ...families.map(({ pendingMs }) => pendingMs)))]);
  tiles.push(["last repair", lastRepair === undefined ? "none" : `${duration(now - lastRepair.at)} ago`]);
  if (api !== undefined) tiles.push(["API server", api.connected ? "connected" : "not connected"]);
  if (conntrack !== undefined) {
    const fill = percentText(conntrack.entries, conntrack.max);
    tiles.push([`of ${conntrack.max.toLocaleString()} connections tracked`, fill]);
  }
  byId("tiles").replaceChildren(
    ...tiles.map(([title, value]) => make("div", "", make("b", "", value), make("span", "quiet", title))),
  );
}

function showEvents(events: readonly StatusEvent[]): void {
  const lines = events.toReversed().map(({ at, type, message }) => {
    const time = make("time", "", new Date(at).toLocaleString([], { hourCycle: "h23" }));
    return make("li", "", time, make("span", type === "warning" ? "warn" : "", message));
  });
  byId("events").replaceChildren(...(lines.length > 0 ? lines : [make("li", "quiet", "none since startup")]));
}

async function explain(packet: string): Promise<void> {
  const output = byId("explanation");
  output.hidden = false;
  setText("explanation", "…");
  const response = await ask(`/status/v1/explain?packet=${encodeURIComponent(packet)}`);
  setText("explanation", response.ok ? ((await response.json()) as PageExplanation).text : await response.text());
}

byId("explain").addEventListener("submit", (event) => {
  event.preventDefault();
  explain(inputById("packet").value).catch((error: unknown) => {
    setText("explanation", reasonOf(error));
  });
});

/** Closes the stream while the page is hidden, so that the daemon computes nothing for it. */
function follow(): void {
  clearTimeout(silence);
  if (document.hidden) {
    source?.close();
    source = undefined;
    return;
  }
  if (source !== undefined) return;
  source = new EventSource("/status/stream");
  source.addEventListener("message", ({ data }: MessageEvent<string>) => {
    awaitUpdate();
    show(JSON.parse(data) as PageUpdate);
  });
  source.addEventListener("error", lost);
  awaitUpdate();
}

/** The connection of a daemon that hangs stays open, so the next update has a time limit. */
function awaitUpdate(): void {
  clearTimeout(silence);
  silence = setTimeout(lost, SILENT_MS);
}

/** Dims the outdated content. The browser reconnects by itself, unless the daemon refused because too many pages are open. */
function lost(): void {
  byId("main").classList.add("away");
  if (source?.readyState !== EventSource.CLOSED) return say(AWAY, "bad");
  say("too many pages are open; retrying", "bad");
  source = undefined;
  setTimeout(follow, REFUSED_MS);
}
document.addEventListener("visibilitychange", follow);
follow();
