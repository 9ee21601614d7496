/** The status page with hostile names and URLs, and while services and the daemon come and go. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Cluster } from "../packets/support/cluster.ts";
import { serviceObjects, type ServiceSpec } from "../packets/support/objects.ts";
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

function show(hash: string): Promise<unknown> {
  return browser.evaluate(`location.hash = ${JSON.stringify(hash)}`);
}

function shows(selector: string): ReturnType<typeof expect.poll<string>> {
  return expect.poll(() => browser.text(selector));
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
