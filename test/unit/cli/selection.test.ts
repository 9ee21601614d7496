/** The names by which commands find services. */
import { describe, expect, test } from "vitest";
import type { DaemonAnswers } from "../../../src/cli/answers/daemon-answers.js";
import { parseSelector, select } from "../../../src/cli/answers/selection.js";
import { API_VERSION, type ServiceList, type ServicePortStatus } from "../../../src/observe/status-report.js";
import { PORT_STATUS } from "../observe/port-status.ts";

test.each([
  ["web", { name: "web" }],
  ["web:80", { name: "web", port: "80" }],
  ["shop/web:http", { namespace: "shop", name: "web", port: "http" }],
  ["10.96.0.1", { address: "10.96.0.1" }],
  ["10.96.0.1:80", { address: "10.96.0.1", port: "80" }],
  ["fd00::1", { address: "fd00::1" }],
  ["[fd00::1]:80", { address: "fd00::1", port: "80" }],
  ["web.v2", { name: "web.v2" }],
  ["service/shop/web:http", { namespace: "shop", name: "web", port: "http" }],
  ["service/web", { namespace: "service", name: "web" }],
  ["30090", { nodePort: 30_090 }],
])("%s is understood", (text, selector) => {
  expect(parseSelector(text)).toEqual(selector);
});

test.each([
  "",
  "a/b/c",
  "0",
  "65536",
  "a/service/b",
  "10.96.0.300",
  "/web",
  "web/",
  "Web",
  "web:",
  "[fd00::1",
  "10.0.0.1/8",
])("%j is neither a name, nor an address, nor a port", (text) => {
  expect(parseSelector(text)).toBeUndefined();
});

const port = (namespace: string, name: string, more: Partial<ServicePortStatus> = {}): ServicePortStatus => ({
  ...PORT_STATUS,
  ...{ namespace, name, endpoints: [] },
  ...more,
});

/** A daemon that serves these ports. */
function daemon(...items: readonly ServicePortStatus[]): DaemonAnswers {
  const list = (some: readonly ServicePortStatus[]): ServiceList | undefined =>
    some.length === 0 ? undefined : { apiVersion: API_VERSION, kind: "ServiceList", items: some };
  const answers: Partial<DaemonAnswers> = {
    eachService: (onItems) => Promise.resolve(onItems(items)),
    service: (namespace, name) =>
      Promise.resolve(list(items.filter((item) => item.namespace === namespace && item.name === name))),
    whyNotServed: (_, name) => Promise.resolve(name === "headless" ? "it is headless" : undefined),
  };
  return answers as DaemonAnswers;
}

describe("a service", () => {
  const answers = daemon(
    port("a", "web", { portName: "http" }),
    port("a", "web", { portName: "dns", port: 53 }),
    port("b", "web"),
    port("b", "api"),
  );
  const found = async (...words: readonly string[]): Promise<string[]> =>
    (await select(answers, words)).items.map(({ namespace, name, port: number }) => `${namespace}/${name}:${number}`);

  test("is found in any namespace, with all of its ports or one", async () => {
    expect(await found("api")).toEqual(["b/api:80"]);
    expect(await found("a/web")).toEqual(["a/web:80", "a/web:53"]);
    expect(await found("a/web:dns")).toEqual(["a/web:53"]);
    expect(await found("a/web:80", "a/web:http", "api")).toEqual(["a/web:80", "b/api:80"]);
    expect((await select(answers, ["web"], "b")).items).toHaveLength(1);
  });

  test.each([
    ["web", "web is in 2 namespaces: a/web, b/web; name one of them, or use -n"],
    ["apt", "no served service has the name apt; did you mean api?"],
    ["a/wbe", "a/wbe is not served: it does not exist; did you mean a/web?"],
    ["a/headless", "a/headless is not served: it is headless"],
    ["a/web:99", "a/web:99: a/web has no such port; its ports are 80/TCP http, 53/TCP dns"],
    ["a/b/c", "a/b/c is not a service; use NAMESPACE/NAME, NAME or ADDRESS, each also with :PORT, or a node port"],
    ["10.9.9.9", "no service and no endpoint has the address 10.9.9.9"],
    ["30091", "no service has node port 30091"],
    ["10.9.9.9:http", "10.9.9.9:http: the port of an address is a number"],
  ])("%s is an error that says why", async (word, message) => {
    await expect(select(answers, [word])).rejects.toThrow(message);
  });
});
