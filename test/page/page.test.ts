/** The status page as a person sees it, in a real browser on the node. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { patience } from "../lab/patience.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "../packets/support/cluster.ts";
import { clusterAddress, serviceObjects, type ServiceSpec } from "../packets/support/objects.ts";
import { Browser } from "./browser.ts";

/** Screenshots of the last run. */
const PICTURES = path.resolve(import.meta.dirname, "../../build/page");
const PAGE = "http://127.0.0.1:10249/status";
const MANY = 10_000;

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

test("health, figures and services appear without a reload, and names are escaped", async () => {
  await expect
    .poll(async () => {
      await browser.goTo(PAGE);
      return browser.evaluate<string>("document.title");
    })
    .toContain("nft-proxier");
  await shows("#health").toMatch(/^(healthy|\d+ problems?)$/);
  await shows("#tiles").toMatch(/IPv4 services/i);
  await shows("#rows").toContain("default/checkout:tcp");
  // It comes with the first update: the table is not empty for longer than the rest of the page.
  expect(await browser.evaluate<number>("performance.now()")).toBeLessThan(patience(8_000));
  await shows("#shown").toMatch(/^\d+ service ports$/);
  expect(browser.errors).toEqual([]);
});

test("services have the order of the command", async () => {
  const rows = `[...document.querySelectorAll("#rows .row span:first-child")].map((cell) => cell.innerText)`;
  const page = await browser.evaluate<string[]>(rows);
  const inBothFamilies = ["auth", "cart", "cart-ui", "catalog"].flatMap((name) => [name, name]);
  expect(page.slice(0, inBothFamilies.length)).toEqual(inBothFamilies.map((name) => `default/${name}:tcp`));
});

test("a list can be searched and sorted, and one service shows its endpoints as bars", async () => {
  await fill("checkout 80");
  await shows("#shown").toMatch(/^2 of \d+ service ports$/);
  await fill("");
  await browser.evaluate(`document.querySelector("#titles button:last-child").click()`);
  await shows("#rows .row:first-child").toContain("rejected");
  await fill("catalog");
  await browser.evaluate(`document.querySelector("#rows .row").click()`);
  await shows("#detail").toContain("33 % of new connections");
  const detail = await browser.text("#detail");
  expect(detail).toContain(
    "balance: consistent by source-ip, 1024 slots · limits: max-connections 500, over-limit reject",
  );
  const widths = await browser.evaluate<string[]>(
    `[...document.querySelectorAll(".share i")].map((bar) => bar.style.width)`,
  );
  // Share of all new connections, as the text says: each of three endpoints has a third, in each family.
  expect(widths).toHaveLength(6);
  expect(widths.filter((width) => !width.startsWith("33.3"))).toEqual([]);
  await fill("");
});

test("an endpoint elsewhere gets no external connections if the policy is Local", async () => {
  await fill("invoices");
  await browser.evaluate(`document.querySelector("#rows .row").click()`);
  await shows("#detail").toContain("33 % of internal and 50 % of external new connections");
  expect(await browser.text("#detail")).toContain("33 % of internal and 0 % of external new connections");
  await fill("");
});

test("ongoing work that needs no action is shown as text while it lasts", async () => {
  const note = "IPv4: 3 virtual servers of kube-proxy's IPVS mode <b>wait</b> until they are idle";
  const shown = await browser.evaluate<string>(`(async () => {
    const status = await (await fetch("/status/v1/status")).json();
    const data = JSON.stringify({ now: Date.now(), status: { ...status, notes: [${JSON.stringify(note)}] }, writes: [] });
    window.pageSource.dispatchEvent(new MessageEvent("message", { data }));
    return document.querySelector("#notes").innerText;
  })()`);
  expect(shown).toBe(`under way ${note}`);
  // The daemon's own messages have none.
  await expect.poll(() => browser.evaluate<boolean>("document.querySelector('#notes').hidden")).toBe(true);
});

test("connections are updated while services do not change", async () => {
  const { namespace } = cluster.source("client");
  const probe = {
    protocol: "tcp",
    source: PLAN.client.ip,
    destination: clusterAddress(1).ip,
    port: 80,
    count: 7,
  } as const;
  await namespace.agent().probe(probe);
  await expect
    .poll(() =>
      browser.evaluate<string>("[...document.querySelectorAll('#rows .row')].map((row) => row.innerText).join('|')"),
    )
    .toMatch(/default\/checkout:tcp[^|]*\b7\b[^|]*active/);
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
  await shows("#events").toMatch(/nft \(pid \d+.*\) deleted the IPv4 table/);
  await shows("#tiles").toMatch(/ago\s+last repair/);
  await shows("#plot-range").toMatch(/in the last 10 minutes/);
  for (const [name, scheme, width] of [
    ["light", "light", 1200],
    ["dark", "dark", 1200],
    ["phone", "dark", 390],
  ] as const) {
    await browser.prefer(scheme);
    await browser.resize(width, width > 400 ? 1000 : 1600, { mobile: width < 400 });
    // Nothing extends beyond the screen of a phone.
    expect(await browser.evaluate<number>("document.documentElement.scrollWidth")).toBeLessThanOrEqual(width);
    writeFileSync(path.join(PICTURES, `${name}.webp`), await browser.screenshot());
  }
  await browser.resize(1200, 1000);
  expect(browser.errors).toEqual([]);
});

test(`${MANY} services: the page holds one screenful of them at any scroll position`, async () => {
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
  const rows = (): Promise<number> => browser.evaluate("document.querySelectorAll('#rows .row').length");
  expect(await rows()).toBeLessThan(60);
  await browser.evaluate(`document.querySelectorAll("#titles button")[0].click()`);
  await browser.evaluate("document.querySelector('#scroller').scrollTop = 1e9");
  await shows("#rows .row:last-child").toContain(`many/many-${MANY - 1}`);
  expect(await rows()).toBeLessThan(60);
  expect(browser.errors).toEqual([]);
});

test("the page says so while the daemon hangs, and recovers", async () => {
  daemon.kill("SIGSTOP");
  await shows("#health").toBe("the daemon does not answer");
  expect(await browser.evaluate("Number(getComputedStyle(document.querySelector('main')).opacity)")).toBeLessThan(1);
  daemon.kill("SIGCONT");
  await shows("#health").toMatch(/^(healthy|\d+ problems?)$/);
});

test("the page says so when the daemon ends, dims, and does not report services as deleted", async () => {
  daemon.kill("SIGTERM");
  await once(daemon, "exit");
  await shows("#health").toBe("the daemon does not answer");
  expect(await browser.evaluate("Number(getComputedStyle(document.querySelector('main')).opacity)")).toBeLessThan(1);
  await ask(`${clusterAddress(1).ip}:80`);
  await shows("#explanation").toBe("the daemon does not answer");
  await browser.evaluate(`document.querySelector("#rows .row").click()`);
  await shows("#detail").toBe("the daemon does not answer");
  writeFileSync(path.join(PICTURES, "away.webp"), await browser.screenshot());
});
