/** The status page with hostile names and URLs, and while services and the daemon come and go. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { patience } from "../lab/patience.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "../packets/support/cluster.ts";
import { clusterAddress, type Manifest, serviceObjects, type ServiceSpec } from "../packets/support/objects.ts";
import { Browser } from "./browser.ts";

const PAGE = "http://127.0.0.1:10249/status";
const shop: readonly ServiceSpec[] = ["checkout", "cart", "cart-ui"].map((name, i) => ({
  name,
  n: i + 1,
  endpoints: i === 2 ? [] : [{ pod: "a", named: `${name}-<img src=x onerror=alert(1)>` }, "r1"],
  protocols: ["tcp"],
}));

let cluster: Cluster;
let browser: Browser;
let daemon: ChildProcess;
let args: readonly string[];

function start(given: readonly string[] = args): void {
  daemon = cluster.start(given);
  daemon.stderr?.resume();
}

async function stop(): Promise<void> {
  daemon.kill("SIGTERM");
  await once(daemon, "exit");
}

beforeAll(async () => {
  cluster = await Cluster.create();
  args = await cluster.write(shop.flatMap((service) => serviceObjects(cluster.lab, service)));
  start();
  browser = await Browser.open(cluster.node);
  await browser.resize(1200, 1000);
});
afterAll(async () => {
  await browser.close();
  await stop();
  await cluster.destroy();
});

/** Types into the search field. */
function fill(value: string): Promise<unknown> {
  return browser.evaluate(
    `(() => { const search = document.querySelector("#search"); search.value = ${JSON.stringify(value)}; search.dispatchEvent(new Event("input")); })()`,
  );
}

function show(hash: string): Promise<unknown> {
  return browser.evaluate(`location.hash = ${JSON.stringify(hash)}`);
}

function shows(selector: string): ReturnType<typeof expect.poll<string>> {
  return expect.poll(() => browser.text(selector));
}

const names = (): Promise<string[]> =>
  browser.evaluate(`[...document.querySelectorAll("#rows tr[data-row]")].map((row) => row.dataset.row)`);

const file = (): string => path.join(args[1], "objects.json");
const read = (): Manifest[] => (JSON.parse(readFileSync(file(), "utf8")) as { items: Manifest[] }).items;

function publish(items: readonly Manifest[]): void {
  writeFileSync(file(), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
}

test("names of pods are shown as text", async () => {
  await expect
    .poll(async () => {
      await browser.goTo(`${PAGE}#service=default/cart`);
      return browser.evaluate<string>("document.title");
    })
    .toContain("nft-proxier");
  await shows("#detail").toContain(", cart-<img src=x onerror=alert(1)>, ");
  expect(await browser.evaluate("document.querySelectorAll('img').length")).toBe(0);
});

test.each(["../events", "../services", "default/cart/../../../events", "..", "/", "default", `${"x".repeat(9_000)}/y`])(
  "the URL's service %s is no path to other answers",
  async (service) => {
    await show(`#service=${encodeURIComponent(service)}`);
    await shows("#detail-title").toBe(service);
    await shows("#detail p").toMatch(/^(.* is not served|status 431)$/);
    expect(browser.errors).toEqual([]);
  },
);

test("a search keeps the services of an endpoint while it stays, and asks for one word at a time", async () => {
  await show("");
  await browser.evaluate(`(() => {
    const { fetch } = window;
    window.asked = { open: 0, most: 0, searches: 0 };
    window.fetch = async (...given) => {
      asked.searches++;
      asked.most = Math.max(asked.most, ++asked.open);
      return fetch(...given).finally(() => asked.open--);
    };
  })()`);
  const pods = ["a", "r1"].map((name) => cluster.lab.pod(name).address.ip);
  await fill(pods.join(" "));
  const found = ["default/cart:tcp", "default/checkout:tcp"];
  await expect.poll(names).toEqual(found);
  const searches = (): Promise<number> => browser.evaluate("asked.searches");
  await expect.poll(searches, { timeout: patience(20_000) }).toBe(4);
  await shows("#shown").toBe("2 of 3 service ports");
  expect(await names()).toEqual(found);
  expect(await browser.evaluate("asked.most")).toBe(1);
});

test("a search that the daemon rejects says why, and does not affect the next one", async () => {
  await fill("x".repeat(301));
  await shows("#shown").toContain("endpoints were not searched: this is not a name or address");
  await fill("x".repeat(9_000));
  await shows("#shown").toContain("endpoints were not searched: status 431");
  await fill("");
  await shows("#shown").toBe("3 service ports");
});

test("closing a service returns the focus to its row", async () => {
  await show("#service=default/cart");
  await shows("#detail-title").toBe("default/cart");
  expect((await names())[0]).toBe("default/cart-ui:tcp");
  await browser.evaluate(`document.querySelector("#detail button[aria-label=Close]").click()`);
  await expect.poll(() => browser.evaluate("document.activeElement.innerText")).toBe("default/cart:tcp");
});

test("an open service says that it is gone, and counts from zero when it returns", async () => {
  const all = read();
  // Beside an open service, there is no room for the column of connections.
  const connections = (): ReturnType<typeof expect.poll<string>> =>
    expect.poll(() =>
      browser.evaluate<string>(
        `document.querySelector('[data-row="default/checkout:tcp"] [title$=served]')?.title ?? ""`,
      ),
    );
  await show("#service=default/checkout");
  await shows("#detail").toContain("new connections");
  const { namespace } = cluster.source("client");
  const probe = { protocol: "tcp", source: PLAN.client.ip, port: 80 } as const;
  await namespace.agent().probe({ ...probe, destination: clusterAddress(1).ip, count: 7 });
  await connections().toBe("7 since it has been served");
  publish(all.filter((object) => !JSON.stringify(object).includes("checkout")));
  await shows("#detail").toContain("default/checkout is not served");
  publish(all);
  await shows("#detail").toContain("new connections");
  await connections().toBe("0 since it has been served");
});

test("an open service is read again after a restart of the daemon", async () => {
  const all = read();
  await show("#service=default/cart");
  await shows("#detail").toContain("50 % of new connections");
  await stop();
  publish(all.map((object) => ({ ...object, ...(JSON.stringify(object).includes('"cart-ip') && { endpoints: [] }) })));
  start();
  await shows("#detail").toContain("no endpoints");
  await show("");
});

test("refusals are not reported as zero if the daemon does not count them", async () => {
  await stop();
  start([...args, "--service-counters", "off"]);
  await shows("main").toContain("Connections are not counted");
  await shows(`[data-row="default/cart-ui:tcp"]`).toMatch(/rejected\s+0\/0\s+not counted\s+–\s+–\s+–\s/);
});

test("before the first write, the page reports no service as deleted", async () => {
  await stop();
  start(["--config", args[3], "--master", "http://127.0.0.1:1"]);
  await shows("#problems").toContain("no IPv4 rules have been written since startup");
  await shows("#shown").toBe("3 service ports");
  await browser.evaluate("location.reload()");
  await shows("#shown").toBe("unknown until the first write");
  expect(browser.errors).toEqual([]);
});
