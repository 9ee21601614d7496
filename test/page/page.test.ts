/** The status page as a person sees it, in a real browser on the node. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "../packets/support/cluster.ts";
import { clusterAddress, type Manifest, serviceObjects, type ServiceSpec } from "../packets/support/objects.ts";
import { Browser } from "./browser.ts";

/** Screenshots of the last run. */
const PICTURES = path.resolve(import.meta.dirname, "../../build/page");
const PAGE = "http://127.0.0.1:10249/status";
const MANY = 10_000;
/** Most times longer to the first rows of many services than to those of few. */
const MOST = 5;

const NAMES = [
  "checkout",
  "cart",
  "catalog",
  "search",
  "payments",
  "ledger",
  "auth",
  "sessions",
  "mail",
  "images",
  "cart-ui",
  "invoices",
];
const shop: readonly ServiceSpec[] = NAMES.map((name, i) => ({
  name,
  n: i + 1,
  endpoints: i === 4 ? [] : ["a", "b", { pod: "r1", ready: i % 3 > 0 }].slice(0, 1 + (i % 3)),
  protocols: ["tcp"],
  ...(i % 4 === 3 && { external: "Local" as const }),
  ...(name === "catalog" && {
    metadata: { annotations: { "nft-proxier.dev/balance": "consistent", "nft-proxier.dev/max-connections": "500" } },
  }),
}));

let cluster: Cluster;
let browser: Browser;
let daemon: ChildProcess;
let args: readonly string[];

beforeAll(async () => {
  mkdirSync(PICTURES, { recursive: true });
  cluster = await Cluster.create();
  args = await cluster.write(shop.flatMap((service) => serviceObjects(cluster.lab, service)));
  daemon = cluster.start(args);
  daemon.stderr?.resume();
  browser = await Browser.open(cluster.node);
  await browser.resize(1200, 1000);
  // A test sends messages that the daemon sends only on other nodes.
  await browser.exposeStream();
});
afterAll(async () => {
  await browser.close();
  if (daemon.exitCode === null) {
    daemon.kill("SIGTERM");
    await once(daemon, "exit");
  }
  await cluster.destroy();
});

/** Types into the search field. */
function fill(value: string): Promise<unknown> {
  return browser.evaluate(
    `(() => { const search = document.querySelector("#search"); search.value = ${JSON.stringify(value)}; search.dispatchEvent(new Event("input")); })()`,
  );
}

/** Waits until the page shows it. */
function shows(selector: string): ReturnType<typeof expect.poll<string>> {
  return expect.poll(() => browser.text(selector));
}

/** The text of a row, one line per cell. */
function row(name: string): ReturnType<typeof expect.poll<string>> {
  return shows(`[data-row="default/${name}:tcp"]`);
}

function click(selector: string): Promise<unknown> {
  return browser.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
}

function press(key: string): Promise<unknown> {
  return browser.evaluate(
    `document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: ${JSON.stringify(key)}, bubbles: true, cancelable: true }))`,
  );
}

const names = (): Promise<string[]> =>
  browser.evaluate(`[...document.querySelectorAll("#rows tr[data-row]")].map((row) => row.dataset.row)`);

test("health, traffic and services appear without a reload, and names are escaped", async () => {
  await expect
    .poll(async () => {
      await browser.goTo(PAGE);
      return browser.evaluate<string>("document.title");
    })
    .toContain("nft-proxier");
  await shows("#health").toMatch(/^(healthy|\d+ problems?)$/);
  await row("checkout").toMatch(/^default\/checkout:tcp\s+active\s+1\/1\s/);
  await shows("#shown").toMatch(/^\d+ service ports$/);
  await shows("figcaption").toMatch(/\d+ new connections\/s/);
  await shows("#tiles").toMatch(/IPv4 services/i);
  expect(browser.errors).toEqual([]);
});

test("the command `page` prints its URL, and how to reach it from elsewhere", async () => {
  const { code, stdout, stderr } = await cluster.command(["page"]);
  expect([code, stdout]).toEqual([0, `${PAGE}\n`]);
  expect(stderr).toContain("ssh -L 10249:127.0.0.1:10249 node-1");
});

test("services that need attention come first, then the others in the order of the command", async () => {
  const all = await names();
  const of = (some: readonly string[]): string[] => some.map((name) => `default/${name}:tcp`);
  // Both families are one row.
  expect(all.slice(0, 4)).toEqual(of(["payments", "auth", "cart", "cart-ui"]));
  await click("#only-problems");
  await shows("#shown").toMatch(/^1 of \d+ service ports$/);
  expect(await names()).toEqual(of(["payments"]));
  await click("#only-problems");
});

const SEARCHES: readonly (readonly [words: string, found: string])[] = [
  ["checkout", "checkout"],
  [clusterAddress(3).ip, "catalog"],
  [`${clusterAddress(3).ip}:80`, "catalog"],
  [clusterAddress(3).ip6, "catalog"],
  ["invoices 80/tcp ipv6", "invoices"],
  ["payments rejected", "payments"],
];

test.each(SEARCHES)("a search for %s finds %s", async (words, found) => {
  await fill(words);
  await shows("#shown").toMatch(/^1 of \d+ service ports$/);
  expect(await names()).toEqual([`default/${found}:tcp`]);
  expect(decodeURIComponent(await browser.evaluate<string>("location.hash")).replaceAll("+", " ")).toBe(`#q=${words}`);
});

test("a search finds the services of an endpoint and of a pod, and says if nothing matches", async () => {
  const { endpoints } = await browser.evaluate<{ endpoints: readonly { address: string; pod?: string }[] }>(
    `fetch("/status/v1/services/default/catalog").then((answer) => answer.json()).then(({ items }) => items[0])`,
  );
  for (const text of endpoints.flatMap(({ address, pod }) => [address, ...(pod === undefined ? [] : [pod])])) {
    await fill(text);
    await expect.poll(names).toContain("default/catalog:tcp");
  }
  await fill("nothing-has-this-name");
  await shows("#shown").toMatch(/^no match among \d+ service ports$/);
  await fill("");
});

test("a service opens beside the table, with its endpoints as bars and commands to copy", async () => {
  await fill("catalog");
  await expect.poll(names).toEqual(["default/catalog:tcp"]);
  await click("#rows a");
  await shows("#detail").toContain("33 % of new connections");
  const detail = await browser.text("#detail");
  expect(detail).toMatch(
    /balance\s+consistent by source-ip, 1024 slots\s+limits\s+max-connections 500, over-limit reject/,
  );
  expect(detail).toContain("nft-proxier services default/catalog");
  expect(detail).toContain(`nft-proxier explain tcp ${clusterAddress(3).ip}:80`);
  const widths = await browser.evaluate<string[]>(
    `[...document.querySelectorAll(".share i")].map((bar) => bar.style.width)`,
  );
  // Share of all new connections, as the text says: each of three endpoints has a third, in each family.
  expect(widths).toHaveLength(6);
  expect(widths.filter((width) => !width.startsWith("33.3"))).toEqual([]);
  const boxes = await browser.evaluate<{
    table: { right: number };
    detail: { left: number; top: number };
    bottom: number;
  }>(
    `(() => { const box = (id) => document.getElementById(id).getBoundingClientRect().toJSON();
      return { table: box("scroller"), detail: box("detail"), bottom: innerHeight }; })()`,
  );
  expect(boxes.detail.left).toBeGreaterThanOrEqual(boxes.table.right);
  expect(boxes.detail.top).toBeLessThan(boxes.bottom);
  await click("#detail .explain");
  await shows("#detail pre").toContain("service default/catalog:tcp: active");
});

test("the URL keeps the search and the service, and Escape closes the service", async () => {
  expect(await browser.evaluate("location.hash")).toBe("#q=catalog&service=default/catalog");
  await browser.evaluate("location.reload()");
  await shows("#detail-title").toBe("default/catalog");
  await expect.poll(names).toEqual(["default/catalog:tcp"]);
  await press("Escape");
  await expect.poll(() => browser.evaluate("document.querySelector('#detail') === null")).toBe(true);
  await fill("");
});

test("the keyboard reaches every row", async () => {
  await expect.poll(async () => (await names()).length).toBeGreaterThan(NAMES.length - 1);
  await browser.evaluate(`document.querySelector("#rows a[tabindex='0']").focus()`);
  const focused = (): Promise<string> => browser.evaluate("document.activeElement.innerText");
  await press("ArrowDown");
  await expect.poll(focused).toBe((await names())[1]);
  await press("End");
  await expect.poll(focused).toBe((await names()).at(-1));
  await press("/");
  expect(await browser.evaluate("document.activeElement.id")).toBe("search");
});

test("an endpoint elsewhere gets no external connections if the policy is Local", async () => {
  await browser.evaluate("location.hash = '#service=default/invoices'");
  await shows("#detail").toContain("33 % of internal and 50 % of external new connections");
  expect(await browser.text("#detail")).toContain("33 % of internal and 0 % of external new connections");
  await press("Escape");
});

test("ongoing work that needs no action is shown as text while it lasts", async () => {
  const note = "IPv4: 3 virtual servers of kube-proxy's IPVS mode <b>wait</b> until they are idle";
  const shown = await browser.evaluate<string>(`(async () => {
    const status = await (await fetch("/status/v1/status")).json();
    const data = JSON.stringify({ id: "", now: Date.now(), status: { ...status, notes: [${JSON.stringify(note)}] }, writes: [], changed: [] });
    window.pageSource.dispatchEvent(new MessageEvent("message", { data }));
    return document.querySelector("#notes").innerText;
  })()`);
  expect(shown).toBe(`under way ${note}`);
  // The daemon's own messages have none.
  await expect.poll(() => browser.evaluate<boolean>("document.querySelector('#notes') === null")).toBe(true);
});

test("connections and refusals appear while services do not change", async () => {
  const { namespace } = cluster.source("client");
  const probe = { protocol: "tcp", source: PLAN.client.ip, port: 80 } as const;
  await namespace.agent().probe({ ...probe, destination: clusterAddress(1).ip, count: 7 });
  await row("checkout").toMatch(/active\s+1\/1\s+[\d.<]+\s+7\s+0\s+0\s/);
  await namespace.agent().probe({ ...probe, destination: clusterAddress(5).ip, count: 2 });
  await row("payments").toMatch(/rejected\s+0\/0\s+0\s+0\s+[1-9]\d*( \([\d.<]+\/s\))?\s+0\s/);
});

/** Replaces the objects of a service. */
function publish(service: ServiceSpec): void {
  const file = path.join(args[1], "objects.json");
  const list = JSON.parse(readFileSync(file, "utf8")) as { items: Manifest[] };
  const changed = serviceObjects(cluster.lab, service);
  const nameOf = ({ kind, metadata }: Manifest): string => `${kind as string} ${(metadata as { name: string }).name}`;
  const names = changed.map(nameOf);
  const items = [...list.items.filter((item) => !names.includes(nameOf(item))), ...changed];
  writeFileSync(file, JSON.stringify({ ...list, items }));
}

test("a changed service changes its row, without the others", async () => {
  const before = await browser.evaluate<number>("performance.getEntriesByType('resource').length");
  publish({ ...shop[0], endpoints: [] });
  await row("checkout").toMatch(/rejected\s+0\/0\s/);
  publish(shop[0]);
  await row("checkout").toMatch(/active\s+1\/1\s/);
  expect(await browser.evaluate<number>("performance.getEntriesByType('resource').length")).toBe(before);
});

function ask(words: string): Promise<unknown> {
  return browser.evaluate(
    `document.querySelector("#packet").value = ${JSON.stringify(words)}; document.querySelector("#explain").requestSubmit()`,
  );
}

test("a packet is explained, and an invalid input is answered with what is expected", async () => {
  await ask("10.96");
  await shows("#explanation").toContain("not an address and port");
  await ask(`${clusterAddress(1).ip}:80`);
  await shows("#explanation").toContain("service default/checkout:tcp: active");
});

test("the process that changed the table appears among the events within seconds", async () => {
  await cluster.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  await shows("#events").toMatch(/nft \((?:pid|thread) \d+.*\) deleted the IPv4 table/);
  await shows("#tiles").toMatch(/last repair\s+[\d.]+ m?s ago/);
  await click("#writes summary");
  await shows("#writes-summary").toMatch(/\d+ writes? in 10 minutes, the longest/);
  await click("#writes summary");
  expect(browser.errors).toEqual([]);
});

const SCREENS = [
  ["desktop", 1200, 1000],
  ["phone", 390, 844],
] as const;

/** Takes pictures of the whole page, and checks that no screen cuts its texts, and that axe finds nothing serious. */
async function inspect(state: string): Promise<void> {
  for (const [screen, width, height] of SCREENS) {
    for (const scheme of ["light", "dark"] as const) {
      await browser.prefer(scheme);
      await browser.resize(width, height, { mobile: width < 400 });
      expect(await browser.evaluate<number>("document.documentElement.scrollWidth"), screen).toBeLessThanOrEqual(width);
      const cut = `[...document.querySelectorAll("#page *:not(.unseen, svg *)")].filter((one) => one.scrollWidth > one.clientWidth + 1
        && one.clientWidth > 0 && getComputedStyle(one).overflowX !== "auto").map((one) => one.innerText)`;
      expect(await browser.evaluate(cut), `${state}, ${screen}`).toEqual([]);
      expect(await browser.violations(), `${state}, ${screen}, ${scheme}`).toEqual([]);
      writeFileSync(path.join(PICTURES, `${state}-${screen}-${scheme}.webp`), await browser.screenshot());
    }
  }
  await browser.resize(1200, 1000);
}

test("healthy: no screen cuts a text, and axe finds nothing serious", async () => {
  await inspect("healthy");
});

test("with a fault: the problem leads to its service; no screen cuts a text, and axe finds nothing serious", async () => {
  publish({ ...shop[0], name: "copy" });
  await shows("#health").toMatch(/^\d+ problems$/);
  await click("#problems a");
  await shows("#detail-title").toBe("default/copy");
  await row("copy").toMatch(/shadowed/);
  await browser.evaluate("location.hash = '#service=default/catalog'");
  await shows("#detail").toContain("33 % of new connections");
  await click("#detail .explain");
  await shows("#detail pre").toContain("service default/catalog:tcp: active");
  await inspect("fault");
  await press("Escape");
});

test("header and cells have the same left edges, also with a scrollbar", async () => {
  const edges = (selector: string): Promise<number[]> =>
    browser.evaluate(
      `[...document.querySelectorAll(${JSON.stringify(selector)})].map((cell) => cell.getBoundingClientRect().left)`,
    );
  expect(await edges("#rows tr[data-row]:nth-child(2) > *")).toEqual(await edges("thead th"));
});

/** The shortest time from a navigation to the first row, in ms, of a few. */
async function firstRowsMs(): Promise<number> {
  const times: number[] = [];
  for (let load = 0; load < 5; load++) {
    let ms = 0;
    await browser.evaluate("delete window.firstAt; location.reload()");
    await expect
      .poll(async () => (ms = (await browser.evaluate<number | null>("window.firstAt ?? null")) ?? 0))
      .toBeGreaterThan(0);
    times.push(ms);
  }
  return Math.min(...times);
}

test(`${MANY} services: rows are there almost as soon as few, and the page holds one screenful of them`, async () => {
  await browser.recordFirst("#rows tr[data-row]");
  const fewMs = await firstRowsMs();
  const address = (n: number): string => `10.97.${n >> 8}.${n & 255}`;
  const many = Array.from({ length: MANY }, (_, n) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: `many-${n}`, namespace: "many" },
    spec: { clusterIP: address(n), clusterIPs: [address(n)], ports: [{ port: 80, protocol: "TCP" }] },
  }));
  const [, manifests = ""] = args;
  writeFileSync(path.join(manifests, "many.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: many }));
  await shows("#shown").toMatch(/^10\d{3} service ports$/);
  expect((await names()).length).toBeLessThan(60);
  await browser.evaluate(`document.querySelector("thead button").click()`);
  await browser.evaluate("document.querySelector('#scroller').scrollTop = 1e9");
  await expect.poll(async () => (await names()).at(-1)).toBe(`many/many-${MANY - 1}`);
  expect((await names()).length).toBeLessThan(60);
  const manyMs = await firstRowsMs();
  console.log(
    `first rows: ${Math.round(fewMs)} ms after the navigation, with ${MANY} services ${Math.round(manyMs)} ms`,
  );
  expect(manyMs / fewMs).toBeLessThan(MOST);
  await shows("#shown").toMatch(/^10\d{3} service ports$/);
  await inspect("many");
  expect(browser.errors).toEqual([]);
});

test("the page says so while the daemon hangs, and recovers", async () => {
  daemon.kill("SIGSTOP");
  await shows("#health").toBe("the daemon does not answer");
  expect(await browser.evaluate("getComputedStyle(document.querySelector('main')).filter")).toBe("grayscale(1)");
  daemon.kill("SIGCONT");
  await shows("#health").toMatch(/^(healthy|\d+ problems?)$/);
  expect(await browser.evaluate("document.querySelector('#outdated') === null")).toBe(true);
});

test("the page says so when the daemon ends, dims, and does not report services as deleted", async () => {
  daemon.kill("SIGTERM");
  await once(daemon, "exit");
  await shows("#health").toBe("the daemon does not answer");
  expect(await browser.evaluate("getComputedStyle(document.querySelector('main')).filter")).toBe("grayscale(1)");
  await ask(`${clusterAddress(1).ip}:80`);
  await shows("#explanation").toBe("the daemon does not answer");
  await browser.evaluate("location.hash = '#service=default/catalog'");
  await shows("#detail").toContain("the daemon does not answer");
  await press("Escape");
  await shows("#outdated").toMatch(/^Everything below is as of /);
  await inspect("stopped");
});
