/** The table of services. Only visible rows exist, so thousands of services cost as little as a screenful. */
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { printable } from "../../../base/printable.js";
import { compareServices, type ServiceState, type StatusProblem } from "../../../observe/status-report.js";
import { type ProblemsOf, type Row, type RowNumbers, type ServiceRows, severity } from "./service-rows.js";
import { addressesOf, rate, shortened, withPort } from "./texts.js";
import { Sparkline } from "./traffic-chart.js";

export const STATE_TONES: Readonly<Record<ServiceState, string>> = {
  active: "good",
  pending: "warn",
  rejected: "warn",
  "no-local-endpoint": "warn",
  shadowed: "bad",
  quarantined: "bad",
};
/** Rows above and below the visible ones, so that scrolling shows no gap. */
const SPARE_ROWS = 10;
/** Longer names are shortened, so that one does not push the columns of all off the screen. */
const LONGEST_NAME = 36;
/** Maximum number of dots for a row's endpoints; more are shown in proportion. */
const MOST_DOTS = 10;

interface TableProps {
  readonly services: ServiceRows;
  readonly rows: readonly Row[];
  readonly problemsOf: ProblemsOf;
  readonly selected: string;
  readonly linkTo: (service: string) => string;
}

interface Entry {
  readonly row: Row;
  readonly numbers: RowNumbers;
  readonly problems: readonly StatusProblem[];
}

interface Column {
  readonly title: string;
  readonly number?: true;
  readonly cell: (entry: Entry, services: ServiceRows) => VNode | string;
  /** Ascending. The first click on a number's title sorts descending. */
  readonly order: (a: Entry, b: Entry) => number;
}

function byName({ row: a }: Entry, { row: b }: Entry): number {
  return compareServices(a.service, b.service) || a.ports[0].port - b.ports[0].port || (a.key < b.key ? -1 : 1);
}

const COLUMNS: readonly Column[] = [
  { title: "Service", cell: ({ row }) => nameText(row), order: byName },
  {
    title: "State",
    cell: ({ row, problems }) => (
      <>
        <span class={STATE_TONES[row.state]}>{row.state}</span>
        {problems.length > 0 && (
          <span
            class="bad"
            role="img"
            aria-label="problem"
            title={printable(problems.map(({ what }) => what).join("\n"))}
          >
            {" ⚠"}
          </span>
        )}
      </>
    ),
    order: (a, b) => rank(a) - rank(b),
  },
  { title: "Endpoints", cell: ({ row }) => <Dots row={row} />, order: (a, b) => readyShare(a.row) - readyShare(b.row) },
  {
    title: "Connections/s",
    number: true,
    cell: ({ row, numbers }, services) =>
      numbers.connections === undefined ? (
        <span class="quiet">not counted</span>
      ) : (
        <span title={`${numbers.connections.toLocaleString("en")} since it has been served`}>
          <Sparkline spark={services.spark(row)} />
          {rate(numbers.rate)}
        </span>
      ),
    order: (a, b) => a.numbers.rate - b.numbers.rate,
  },
  {
    title: "Connections",
    number: true,
    cell: ({ numbers: { connections } }) => (connections === undefined ? "–" : connections.toLocaleString("en")),
    order: (a, b) => (a.numbers.connections ?? 0) - (b.numbers.connections ?? 0),
  },
  {
    title: "Refused",
    number: true,
    cell: ({ numbers }, { counted }) => (counted ? failures(numbers.refused, numbers.refusedRate, "bad") : "–"),
    order: (a, b) => a.numbers.refused - b.numbers.refused,
  },
  {
    title: "Dropped",
    number: true,
    cell: ({ numbers }, { counted }) => (counted ? failures(numbers.dropped, numbers.droppedRate, "warn") : "–"),
    order: (a, b) => a.numbers.dropped - b.numbers.dropped,
  },
  {
    title: "Address",
    cell: ({ row }) => <span title={allAddresses(row).join("\n")}>{addressText(row)}</span>,
    order: (a, b) => new Intl.Collator("en", { numeric: true }).compare(addressText(a.row), addressText(b.row)),
  },
  {
    title: "Node port",
    number: true,
    cell: ({ row }) => nodePortText(row),
    order: (a, b) => nodePort(a.row) - nodePort(b.row),
  },
];
const STATE_COLUMN = 1;

/** Worst first. */
function rank({ row, problems, numbers }: Entry): number {
  if (problems.length > 0) return -1;
  return 2 * severity(row) - (numbers.refusedRate + numbers.droppedRate > 0 ? 1 : 0);
}

function failures(count: number, perSecond: number, tone: string): VNode | string {
  if (count === 0) return "0";
  const text = `${count.toLocaleString("en")}${perSecond > 0 ? ` (${rate(perSecond)}/s)` : ""}`;
  return <span class={perSecond > 0 ? tone : ""}>{text}</span>;
}

function readyShare({ ports }: Row): number {
  return Math.min(...ports.map(({ ready, total }) => (total === 0 ? 0 : ready / total)));
}

function nameText({ title }: Row): string {
  return shortened(printable(title), LONGEST_NAME);
}

function allAddresses({ ports }: Row): string[] {
  return ports.flatMap((port) => addressesOf(port).map((address) => printable(withPort(address, port.port))));
}

/** The first address: an open service shows the others. */
function addressText(row: Row): string {
  const [first = "–", ...others] = allAddresses(row);
  return `${first} ${row.ports[0].protocol}${others.length === 0 ? "" : ` +${others.length}`}`;
}

function nodePort({ ports }: Row): number {
  return Math.max(...ports.map((port) => port.nodePort));
}

function nodePortText(row: Row): string {
  return nodePort(row) === 0 ? "" : String(nodePort(row));
}

/** Ready endpoints as dots, of the family that has the smallest share of them. */
function Dots({ row }: { readonly row: Row }): VNode {
  const { ports } = row;
  const worst = ports.toSorted((a, b) => a.ready * (b.total || 1) - b.ready * (a.total || 1))[0];
  const { ready, serving, total } = worst;
  const shown = Math.min(total, MOST_DOTS);
  const part = (count: number): number => Math.ceil((count * shown) / Math.max(1, total));
  const green = ready === total ? shown : Math.min(part(ready), shown - 1);
  const amber = ready === 0 ? Math.min(part(serving), shown) : 0;
  const tones = Array.from({ length: shown }, (_, i) => (i < green ? "good" : i < green + amber ? "warn" : "gone"));
  const differ = ports.some((port) => port.ready !== ready || port.total !== total);
  const text = `${ready} of ${total} ready${differ ? ` (${FAMILY_NAMES[worst.family]})` : ""}`;
  return (
    <span title={text}>
      <span class="dots" aria-hidden="true">
        {tones.map((tone, i) => (
          <i key={i} class={`dot ${tone}`} />
        ))}
      </span>
      {`${ready}/${total}`}
    </span>
  );
}

/** The whole name, and why the row is in its state. */
function titleOf({ title, ports }: Row): string {
  const reason = ports.find((port) => port.reason !== undefined)?.reason;
  return printable(reason === undefined ? title : `${title}: ${reason}`);
}

/** Height of a row in CSS pixels, as the style sheet has it. */
function rowHeight(element: Element): number {
  return Number.parseFloat(getComputedStyle(element).getPropertyValue("--row"));
}

export function ServiceTable({ services, rows, problemsOf, selected, linkTo }: TableProps): VNode {
  const [sorted, setSorted] = useState({ column: STATE_COLUMN, descending: false });
  const [view, setView] = useState({ top: 0, height: 600, row: 34 });
  const [focused, setFocused] = useState(0);
  const scroller = useRef<HTMLDivElement>(null);
  const focusWanted = useRef(false);
  const measure = (): void => {
    const element = scroller.current;
    if (element !== null) setView({ top: element.scrollTop, height: element.clientHeight, row: rowHeight(element) });
  };
  useLayoutEffect(measure, []);
  useEffect(() => {
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const { order } = COLUMNS[sorted.column];
  const entries = rows
    .map((row): Entry => ({ row, numbers: services.numbers(row), problems: problemsOf(row) }))
    .sort((a, b) => (sorted.descending ? order(b, a) : order(a, b)) || byName(a, b));
  const first = Math.max(0, Math.min(Math.floor(view.top / view.row) - SPARE_ROWS, entries.length - 1));
  const last = Math.min(entries.length, first + Math.ceil(view.height / view.row) + 2 * SPARE_ROWS);
  const inTabOrder = focused >= first && focused < last ? focused : first;
  useLayoutEffect(() => {
    if (!focusWanted.current) return;
    focusWanted.current = false;
    scroller.current?.querySelector<HTMLElement>(`[data-index="${focused}"]`)?.focus({ preventScroll: true });
  });
  const move = (event: KeyboardEvent): void => {
    const to = { ArrowDown: focused + 1, ArrowUp: focused - 1, Home: 0, End: entries.length - 1 }[event.key];
    const element = scroller.current;
    if (to === undefined || entries[to] === undefined || element === null) return;
    event.preventDefault();
    const [from, shown] = [to * view.row, element.clientHeight - 2 * view.row];
    if (from < element.scrollTop) element.scrollTop = from;
    else if (from > element.scrollTop + shown) element.scrollTop = from - shown;
    measure();
    focusWanted.current = true;
    setFocused(to);
  };
  const longest = (of: (row: Row) => string): number => rows.reduce((most, row) => Math.max(most, of(row).length), 12);
  const dots = rows.reduce((most, { ports }) => Math.max(most, Math.min(ports[0].total, MOST_DOTS)), 0);
  const widths = [
    ...[`${longest(nameText) + 2}ch`, `${longest(({ state }) => state) + 4}ch`],
    ...[`calc(${10 * dots}px + 10ch)`, "9rem", "6.5rem", "7rem", "7rem"],
  ];
  return (
    <div id="scroller" ref={scroller} onScroll={measure}>
      <table aria-rowcount={entries.length + 1}>
        <caption class="unseen">Services of this node</caption>
        <colgroup>
          {[...widths, `${longest(addressText) + 2}ch`, "5.5rem"].map((width, i) => (
            <col key={i} style={{ width }} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {COLUMNS.map(({ title, number }, column) => (
              <th
                key={title}
                scope="col"
                class={number && "number"}
                aria-sort={column !== sorted.column ? "none" : sorted.descending ? "descending" : "ascending"}
              >
                <button
                  type="button"
                  onClick={() =>
                    setSorted((before) => ({
                      column,
                      descending: before.column === column ? !before.descending : number === true,
                    }))
                  }
                >
                  {title}
                  <span aria-hidden="true">{column !== sorted.column ? "" : sorted.descending ? " ↓" : " ↑"}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody id="rows" onKeyDown={move}>
          <Gap rows={first} height={view.row} />
          {entries.slice(first, last).map((entry, i) => {
            const index = first + i;
            const { row } = entry;
            return (
              <tr
                key={row.key}
                aria-rowindex={index + 2}
                class={row.service === selected ? "selected" : ""}
                data-row={row.title}
                onClick={({ target }) => {
                  const isLink = target instanceof Element && target.closest("a") !== null;
                  if (!isLink) location.hash = linkTo(row.service);
                }}
              >
                {COLUMNS.map(({ title, number, cell }, column) =>
                  column === 0 ? (
                    <th key={title} scope="row" title={titleOf(row)}>
                      <a
                        href={linkTo(row.service)}
                        data-index={index}
                        tabIndex={index === inTabOrder ? 0 : -1}
                        aria-current={row.service === selected}
                        aria-label={printable(row.title)}
                        onFocus={() => setFocused(index)}
                      >
                        {cell(entry, services)}
                      </a>
                    </th>
                  ) : (
                    <td key={title} class={number && "number"}>
                      {cell(entry, services)}
                    </td>
                  ),
                )}
              </tr>
            );
          })}
          <Gap rows={entries.length - last} height={view.row} />
        </tbody>
      </table>
    </div>
  );
}

/** Stands for rows that do not exist. */
function Gap({ rows, height }: { readonly rows: number; readonly height: number }): VNode | null {
  if (rows <= 0) return null;
  return (
    <tr aria-hidden="true" class="gap">
      <td colSpan={COLUMNS.length} style={{ height: `${rows * height}px` }} />
    </tr>
  );
}
