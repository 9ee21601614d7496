/** The table of services and the panel beside it: states, widths and texts, with faults that concern one port only. */
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ServicePortStatus, StatusReport } from "../../src/observe/status-report.js";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "../packets/support/cluster.ts";
import {
  clusterAddress,
  externalAddress,
  type Manifest,
  nodePortOf,
  POD_PORT,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
} from "../packets/support/objects.ts";
import { Browser } from "./browser.ts";

const PAGE = "http://127.0.0.1:10249/status";
/** Screenshots of the last run. */
const PICTURES = path.resolve(import.meta.dirname, "../../build/page");
/** No program listens on it. */
const WRONG_PORT = 8081;
/** As long as a name may be. */
const LONGEST = `a-name-of-sixty-three-characters-${"x".repeat(26)}-end`;

const two: ServiceSpec = { name: "two", n: 1, endpoints: ["a"], protocols: ["tcp"] };
const winner: ServiceSpec = { name: "winner", n: 2, endpoints: ["a", "r1"], protocols: ["tcp"] };
const loser: ServiceSpec = { ...winner, name: "zloser", n: 3, spec: { externalIPs: [externalAddress(2).ip] } };

/** `two` with a second port, whose targetPort is wrong. */
function twoPorts(): Manifest[] {
  return serviceObjects(cluster.lab, two).map((object) => {
    if (object["kind"] === "Service") {
      const { ports = [], ...spec } = object["spec"] as { readonly ports?: readonly Manifest[] };
      const admin = { name: "admin", port: 9090, protocol: "TCP", targetPort: WRONG_PORT, nodePort: nodePortOf(51) };
      return { ...object, spec: { ...spec, ports: [...ports, admin] } };
    }
    return {
      ...object,
      ports: [
        { name: "tcp", protocol: "TCP", port: POD_PORT },
        { name: "admin", protocol: "TCP", port: WRONG_PORT },
      ],
    };
  });
}

/** In a namespace whose name is as long as its own. */
function longNamed(): Manifest[] {
  return serviceObjects(cluster.lab, { name: LONGEST, n: 4, endpoints: ["a"], protocols: ["tcp"] }).map((object) => ({
    ...object,
    metadata: { ...(object["metadata"] as Manifest), namespace: LONGEST },
  }));
}

let cluster: Cluster;
let browser: Browser;

beforeAll(async () => {
  mkdirSync(PICTURES, { recursive: true });
  cluster = await Cluster.create();
  const args = await cluster.write([
    ...twoPorts(),
    ...longNamed(),
    ...[winner, loser].flatMap((service) => serviceObjects(cluster.lab, service)),
    ...Array.from({ length: 12 }, (_, i) =>
      serviceObject({ name: `web-${i}`, n: 10 + i, endpoints: [], protocols: ["tcp"], external: "Local" }),
    ),
  ]);
  cluster.start(args).stderr?.resume();
  browser = await Browser.open(cluster.node);
  await browser.resize(1440, 1000);
});
afterAll(async () => {
  await browser.close();
  await cluster.destroy();
});

function shows(selector: string): ReturnType<typeof expect.poll<string>> {
  return expect.poll(() => browser.text(selector));
}

function row(title: string): ReturnType<typeof expect.poll<string>> {
  return shows(`[data-row="${title}"]`);
}

function open(service: string): Promise<unknown> {
  return browser.evaluate(`location.hash = "#service=${service}"`);
}

/** Opens connections to a port of `two`. */
function connect(port: number, count: number): Promise<unknown> {
  const probe = { protocol: "tcp", source: PLAN.client.ip, destination: clusterAddress(1).ip } as const;
  return cluster
    .source("client")
    .namespace.agent()
    .probe({ ...probe, port, count });
}

test("a problem marks the port that it concerns, and neither another port nor another service that its text names", async () => {
  await expect
    .poll(async () => {
      await browser.goTo(PAGE);
      return browser.evaluate<string>("document.title");
    })
    .toContain("nft-proxier");
  await shows("#shown").toBe("17 service ports");
  await connect(9090, 6);
  await connect(80, 6);
  await row("default/two:admin").toMatch(/\tactive ⚠\s/);
  await row("default/zloser:tcp").toMatch(/\tshadowed ⚠\s/);
  for (const healthy of ["default/two:tcp", "default/winner:tcp"]) {
    expect(await browser.text(`[data-row="${healthy}"]`)).toMatch(/\tactive\s+\d/);
  }
  // Beside these two, the services without endpoints.
  expect(await browser.text("#only-problems")).toBe("14 need attention");
});

test("table, panel and commands have the same word for a port's state", async () => {
  const { stdout } = await cluster.command(["services", "default/two", "-o", "json"]);
  const { items } = JSON.parse(stdout) as { readonly items: readonly ServicePortStatus[] };
  expect(items.map(({ portName, family, state }) => `${portName} ${family} ${state}`)).toEqual([
    ...["tcp ip active", "admin ip active", "tcp ip6 active", "admin ip6 active"],
  ]);
  await open("default/two");
  const headings = "[...document.querySelectorAll('#detail h4')].map(({ innerText }) => innerText).sort().join()";
  await expect
    .poll(() => browser.evaluate<string>(headings))
    .toBe(
      "admin · 9090/TCP IPv4 active,admin · 9090/TCP IPv6 active,tcp · 80/TCP IPv4 active,tcp · 80/TCP IPv6 active",
    );
  const status = JSON.parse((await cluster.command(["status", "-o", "json"])).stdout) as StatusReport;
  expect(status.problems.map(({ concerns }) => concerns)).toEqual([
    [{ service: "default/two", protocol: "TCP", port: 9090, family: "ip" }],
    [{ service: "default/zloser" }],
  ]);
});

test("the panel has the problem of the box, with the same count", async () => {
  const problem = (): Promise<string> => browser.text("#problems .bad");
  for (const count of [6, 11]) {
    if (count > 6) await connect(9090, count - 6);
    await shows("#problems").toContain(`refused ${count} connections`);
    await shows("[aria-label='default/two:admin IPv4']").toContain(`refused ${count} packets in the last minute`);
    const both = `[${JSON.stringify("#problems .bad")}, "[aria-label='default/two:admin IPv4'] .bad"].map((one) => document.querySelector(one)?.innerText)`;
    const [box, panel] = await browser.evaluate<string[]>(both);
    expect(panel).toBe(box);
  }
  expect(await problem()).toContain("default/two:admin (9090/TCP IPv4)");
  expect(await browser.text("[aria-label='default/two:tcp IPv4']")).not.toContain("refused");
});

test("commands in remedies are shown as code, and times in the order of ISO 8601", async () => {
  await shows("#problems code").toBe("nft-proxier services default/two");
  expect(await browser.text("#page")).not.toContain("`");
  expect(await browser.text("#events time")).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  expect(await browser.text("#about")).toMatch(/node time \d\d:\d\d:\d\d$/);
  expect(await browser.text(".legends")).toMatch(/^connections refused or dropped, the last \d+ readings$/);
});

test.each([
  [1440, ""],
  [1440, "default/two"],
  [1280, "default/two"],
])("%i pixels wide, beside the service %o, no column is cut by the longest name", async (width, service) => {
  await browser.resize(width, 1000);
  await open(service);
  await expect.poll(() => browser.evaluate("document.querySelector('#detail') !== null")).toBe(service !== "");
  const long = `${LONGEST}/${LONGEST}:tcp`;
  await row(long).toMatch(/^a-name-of-.*….*-end:tcp\s+active/);
  expect(await browser.evaluate(`document.querySelector('[data-row="${long}"] th').title`)).toBe(long);
  const overflow = "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('#scroller'))";
  expect(await browser.evaluate<number>(overflow)).toBeLessThanOrEqual(0);
  for (const scheme of ["light", "dark"] as const) {
    await browser.prefer(scheme);
    const name = `table-${width}${service === "" ? "" : "-open"}-${scheme}`;
    writeFileSync(path.join(PICTURES, `${name}.webp`), await browser.screenshot());
  }
});

test("a search says that nothing matches only after endpoints were searched", async () => {
  await browser.evaluate(`(() => {
    const { fetch } = window;
    const answered = new Promise((resolve) => (window.answer = resolve));
    window.fetch = (...given) => answered.then(() => fetch(...given));
    const search = document.querySelector("#search");
    search.value = "nothing-has-this-name";
    search.dispatchEvent(new Event("input"));
  })()`);
  await shows("#shown").toBe("searching endpoints…");
  await browser.evaluate("window.answer()");
  await shows("#shown").toBe("no match among 17 service ports");
});

/** Asks for the path on so many connections, reads nothing, and reports when all are answered. */
const HOLD = `
const [count, path] = process.argv.slice(1);
let answered = 0;
for (let i = 0; i < Number(count); i++) {
  const socket = require("node:net").connect(10249, "127.0.0.1");
  socket.write("GET " + path + " HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n");
  socket.on("error", () => undefined);
  socket.once("readable", () => ++answered === Number(count) && console.log("all"));
}
setInterval(() => undefined, 1000);
`;

test.each([
  [8, "/status/stream"],
  [256, "/metrics"],
])(
  "%i clients that never read %s keep nobody out, and a page whose place is taken says so and returns",
  async (count, path) => {
    await browser.goTo(PAGE);
    await shows("#health").toMatch(/^2 problems$/);
    await browser.evaluate(`(() => {
    window.healths = [];
    const health = document.querySelector("#health");
    new MutationObserver(() => healths.push(health.innerText)).observe(health, { childList: true, characterData: true, subtree: true });
  })()`);
    const readers = cluster.node.spawn([process.execPath, "-e", HOLD, String(count), path], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(readers.stdout!, "data");
    if (path === "/status/stream") {
      await expect
        .poll(() => browser.evaluate<string[]>("healths"))
        .toContain("another page has taken the place of this one (8 may be open); trying again");
    }
    await shows("#health").toMatch(/^2 problems$/);
    const metrics = await cluster.node.mustRun(["curl", "-sf", "http://127.0.0.1:10249/metrics"]);
    expect(metrics).toContain("kubeproxy_");
    readers.kill();
    expect(browser.errors).toEqual([]);
  },
);
