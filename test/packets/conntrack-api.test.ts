/** `nft-proxier conntrack` with services from an API server: names, garbage, and rejected input. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { KubeJson } from "../lab/api-server/api-server.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Api } from "./support/api.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  everyWay,
  type Manifest,
  nodeObject,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";

const TOKEN = "token-of-the-node";
const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["udp"] };
const dns: ServiceSpec = { name: "dns", n: 2, endpoints: ["b"], protocols: ["udp"] };

let cluster: Cluster;
let api: Api;
let directory: string;
const at = (name: string): string => join(directory, name);
/** One entry for every way to each service. */
let entries = 0;

beforeAll(async () => {
  cluster = await Cluster.create();
  directory = await cluster.temporaryDirectory();
  const timeouts = ["udp_timeout", "udp_timeout_stream"].map((name) => [
    `net.netfilter.nf_conntrack_${name}`,
    patience(600),
  ]);
  await cluster.lab.node.sysctl(Object.fromEntries(timeouts) as Record<string, number>);
  api = await Api.start(cluster.node, { tls: {}, tokens: [TOKEN] });
  await put(nodeObject(), serviceCIDRObject(), ...objects(web), ...objects(dns));
  await writeFile(at("ca.crt"), api.ca);
  await writeFile(at("kubeconfig"), kubeconfig(TOKEN));
  await writeFile(
    at("config.json"),
    JSON.stringify(configuration({ clientConnection: { kubeconfig: at("kubeconfig") } })),
  );
  await cluster.apply([...objects(web), ...objects(dns)]);
  const { namespace, address } = cluster.source("client");
  for (const to of [...everyWay(web), ...everyWay(dns)]) {
    for (const family of FAMILIES) {
      const ends = { source: address?.[family] ?? "", destination: to.address[family], port: to.port };
      expect(await namespace.agent().probe({ protocol: "udp", ...ends })).toMatchObject([{ result: "ok" }]);
      entries++;
    }
  }
});
afterAll(() => cluster.destroy());

function kubeconfig(token: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "here", cluster: { "certificate-authority": at("ca.crt"), server: api.url } }],
    contexts: [{ name: "here", context: { cluster: "here", user: "me" } }],
    "current-context": "here",
    users: [{ name: "me", user: { token } }],
  });
}

/** The endpoints name their pods, as in a cluster. */
function objects(service: ServiceSpec): Manifest[] {
  const targetRef = { kind: "Pod", namespace: "default", name: `${service.name}-0` };
  return serviceObjects(cluster.lab, service).map((object) =>
    object["kind"] === "Service"
      ? object
      : { ...object, endpoints: (object["endpoints"] as object[]).map((endpoint) => ({ ...endpoint, targetRef })) },
  );
}

function put(...manifests: readonly Manifest[]): Promise<void> {
  return api.call("put", manifests as unknown as readonly KubeJson[]);
}

async function conntrack(...words: readonly string[]) {
  const { code, stdout, stderr } = await cluster.command(["conntrack", ...words]);
  return { code, stderr, lines: stdout.split("\n").filter((line) => line !== "") };
}

/** Number of entries left in the table, including those of others. */
async function left(): Promise<number> {
  return Number((await conntrack("count", "-p", "udp")).lines[0]);
}

describe.each([
  ["--config", () => at("config.json")],
  ["--kubeconfig", () => at("kubeconfig")],
])("%s", (option, file) => {
  test("list shows a service's entries, its port's name and the pods that serve it", async () => {
    const words = ["list", "-o", "json", "--service", "default/web", "-d", clusterIP(web).address.ip];
    const { code, stderr, lines } = await conntrack(...words, option, file());
    expect([code, stderr, lines.length]).toEqual([0, "", 1]);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ service: "default/web:udp", pod: "default/web-0" });
  });

  test("an unknown service is an error with the nearest name, and nothing is shown or deleted", async () => {
    const before = await left();
    for (const verb of ["list", "count", "watch"]) {
      const { code, stderr, lines } = await conntrack(verb, "--service", "default/wep", option, file());
      expect([code, lines]).toEqual([1, []]);
      expect(stderr).toBe("nft-proxier: there is no service default/wep (did you mean default/web?)\n");
    }
    expect(await left()).toBe(before);
  });
});

test("with --config, entries to node ports have names, too", async () => {
  const { code, stderr, lines } = await conntrack("count", "--service", "default/dns", "--config", at("config.json"));
  expect([code, stderr, lines]).toEqual([0, "", [String(entries / 2)]]);
});

describe("gc", () => {
  test.each<[string, () => string, RegExp]>([
    ["a server that rejects the token", () => kubeconfig("another"), /^nft-proxier: the API server .*401.*token/],
    ["an invalid kubeconfig", () => "{", /kubeconfig/],
  ])("with %s, it reports the error at once and deletes nothing", async (_name, content, message) => {
    await writeFile(at("wrong"), content());
    const before = await left();
    const { code, stderr, lines } = await conntrack("gc", "--orphans", "--kubeconfig", at("wrong"));
    expect([code, lines]).toEqual([1, []]);
    expect(stderr).toMatch(message);
    expect(await left()).toBe(before);
  });

  test("entries of endpoints that the API server's services no longer have are deleted, and no others", async () => {
    await put(...objects({ ...dns, endpoints: ["r1"] }));
    const dry = await conntrack("gc", "--dry-run", "--no-headers", "--config", at("config.json"));
    expect([dry.code, dry.lines.length, await left()]).toEqual([0, entries / 2, entries]);
    const done = await conntrack("gc", "--no-headers", "--config", at("config.json"));
    expect([done.code, done.lines.length]).toEqual([0, entries / 2]);
    const rest = await conntrack("count", "--service", "default/web", "--config", at("config.json"));
    expect([rest.lines, await left()]).toEqual([[String(entries / 2)], entries / 2]);
  });
});
