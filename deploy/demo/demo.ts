/**
 * `npm run demo` shows the purpose of nft-proxier within a minute. A node, pods and an outside client are network
 * namespaces. It runs the real proxier with the manifests of deploy/examples, and sends real requests. Exits with 1 if
 * any request fails.
 */
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { parseAllDocuments, stringify } from "yaml";
import type { Namespace } from "../../test/lab/namespace.ts";
import { Lab, PLAN, type Pod } from "../../test/lab/topology.ts";
import { bars, failures, heading, say } from "./print.ts";
import { lines, Load, MAIN, ProxierProcess, startPod, stopPod } from "./programs.ts";

const examples = path.resolve(import.meta.dirname, "..", "examples");
const REQUESTS = 150;
const CLUSTER_IP = { ip: "10.96.0.80", ip6: "fd00:10:96::80" };
const LOAD_BALANCER_IP = "203.0.113.80";
const NODE_PORT = 30080;
const METRICS_PORT = 10249;
const { values: options } = parseArgs({ options: { page: { type: "boolean", default: false } } });

interface Slice {
  readonly kind: string;
  readonly addressType: string;
  endpoints: { addresses: string[]; nodeName: string; conditions: { ready: boolean } }[];
}

let failed = 0;

/**
 * Edits web.yaml as a person or a ConfigMap would, by replacing the file. Returns the time of the edit, ms since the
 * epoch.
 */
function setEndpoints(directory: string, pods: readonly Pod[]): number {
  const file = path.join(directory, "web.yaml");
  const documents = parseAllDocuments(readFileSync(file, "utf8")).map((document) => document.toJS() as Slice);
  for (const document of documents) {
    if (document.kind !== "EndpointSlice") continue;
    const family = document.addressType === "IPv6" ? "ip6" : "ip";
    document.endpoints = pods.map((pod) => ({
      addresses: [pod.address[family]],
      nodeName: pod.on === "node" ? "node-a" : "node-b",
      conditions: { ready: true },
    }));
  }
  const next = path.join(directory, ".web.yaml.next");
  writeFileSync(next, documents.map((document) => stringify(document)).join("---\n"));
  const edited = Date.now();
  renameSync(next, file);
  return edited;
}

/** Sends requests and draws the share of each pod. */
async function spread(from: Namespace, who: string, what: string, url: string): Promise<void> {
  const answers = await new Load(from, url, REQUESTS).finished();
  failed += answers.failures.length;
  say(`${who} → ${what}: ${REQUESTS} requests, ${failures(answers.failures.length)}`);
  for (const reason of new Set(answers.failures)) say(`  ${reason}`);
  bars(answers.counts);
}

async function showSpread(lab: Lab, inside: Namespace): Promise<void> {
  heading("Where requests arrive");
  await spread(inside, "a pod", `ClusterIP ${CLUSTER_IP.ip}:80`, `http://${CLUSTER_IP.ip}/`);
  await spread(inside, "a pod", `ClusterIP [${CLUSTER_IP.ip6}]:80`, `http://[${CLUSTER_IP.ip6}]/`);
  await spread(
    lab.client,
    "a client outside",
    `node port ${PLAN.node.ip}:${NODE_PORT}`,
    `http://${PLAN.node.ip}:${NODE_PORT}/`,
  );
  await spread(lab.client, "a client outside", `load balancer ${LOAD_BALANCER_IP}:80`, `http://${LOAD_BALANCER_IP}/`);
}

async function scaleUp(lab: Lab, proxier: ProxierProcess, directory: string, pods: readonly Pod[]): Promise<void> {
  heading("Scaling the service from 3 endpoints to 4, under load");
  const added = pods.at(-1);
  if (added === undefined) throw new Error("no pod to add");
  const load = new Load(lab.client, `http://${LOAD_BALANCER_IP}/`, "until-told");
  await load.begun();
  await sleep(500);
  const from = proxier.log.length;
  const edited = setEndpoints(directory, pods);
  const synced = await proxier.synced("ip", from);
  const first = await load.firstAnswer(added.name);
  await sleep(1000);
  const answers = await load.stop();
  failed += answers.failures.length;
  say(`the manifest was edited                    at     0 ms`);
  say(`the kernel had the change                  at ${String(Date.parse(synced.ts) - edited).padStart(5)} ms`);
  say(`the new pod answered its first request     at ${String(first - edited).padStart(5)} ms`);
  say(`${synced.operations} operations in one transaction, ${synced.kernelMs} ms of them in the kernel`);
  say(`requests meanwhile: ${total(answers.counts)}, ${failures(answers.failures.length)}`);
  bars(answers.counts);
}

async function takeAway(
  lab: Lab,
  proxier: ProxierProcess,
  directory: string,
  rest: readonly Pod[],
  end: () => Promise<void>,
): Promise<void> {
  heading("Removing a pod, under load");
  const load = new Load(lab.client, `http://${LOAD_BALANCER_IP}/`, "until-told");
  await load.begun();
  await sleep(500);
  const from = proxier.log.length;
  const edited = setEndpoints(directory, rest);
  const synced = await proxier.synced("ip", from);
  await end();
  const ended = Date.now();
  await sleep(1000);
  const answers = await load.stop();
  failed += answers.failures.length;
  say(
    `the kernel had the change ${Date.parse(synced.ts) - edited} ms after the edit; the pod ended ${ended - edited} ms after the edit`,
  );
  say(`requests meanwhile: ${total(answers.counts)}, ${failures(answers.failures.length)}`);
  for (const reason of new Set(answers.failures)) say(`  ${reason}`);
  bars(answers.counts);
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Shows a few lines of the ruleset, as any user on the node sees it. */
async function showRuleset(lab: Lab): Promise<void> {
  heading("The rules on the node, as nft shows them");
  const { stdout } = await lab.node.run(["nft", "list", "table", "ip", "kube-proxy"]);
  const lines = stdout.split("\n").map((line) => line.trim());
  const draw = lines.filter((line) => line.includes("dnat ip to ip daddr .") && line.includes("random mod 3 map"));
  if (draw.length === 0) throw new Error("no rule draws one of three endpoints");
  const elements = lines
    .flatMap((line) => line.replace(/^elements = \{|\}$/g, "").split(","))
    .map((element) => element.trim())
    .filter((element) => element.startsWith(`${CLUSTER_IP.ip} .`));
  say("One rule per shard draws an endpoint for all services with three endpoints:");
  for (const line of draw) say(`    ${line}`);
  say("The service itself is a few elements in maps that all services share:");
  for (const element of elements) say(`    ${element}`);
}

/** Asks the running daemon what an operator would: `services`, `explain` and `status`. */
async function ask(lab: Lab, pod: Pod): Promise<void> {
  heading("The commands on the node");
  const questions = [["services", "demo/web"], ["explain", "tcp", pod.address.ip, `${CLUSTER_IP.ip}:80`], ["status"]];
  for (const words of questions) {
    const { stdout, stderr } = await lab.node.run([process.execPath, MAIN, ...words]);
    say(`$ nft-proxier ${words.join(" ")}`);
    for (const line of `${stdout}${stderr}`.trimEnd().split("\n")) say(`    ${line}`);
    say("");
  }
}

/** Traces live packets: three requests, each a connection whose first packet is traced. */
async function trace(lab: Lab, pod: Pod): Promise<void> {
  const words = ["trace", "demo/web", "--count", "3"];
  say(`$ nft-proxier ${words.join(" ")}`);
  const command = lab.node.spawn([process.execPath, MAIN, ...words], { stdio: ["ignore", "pipe", "pipe"] });
  const ended = once(command, "exit");
  const show = async (stream: Readable | null, onLine: () => void): Promise<void> => {
    for await (const line of lines(stream)) {
      say(`    ${line}`);
      onLine();
    }
  };
  const started = Promise.withResolvers<void>();
  const shown = Promise.all([show(command.stderr, started.resolve), show(command.stdout, () => undefined)]);
  await Promise.race([started.promise, ended]);
  const requests = [
    [lab.client, `http://${LOAD_BALANCER_IP}/`],
    [lab.client, `http://${PLAN.node.ip}:${NODE_PORT}/`],
    [pod.namespace, `http://[${CLUSTER_IP.ip6}]/`],
  ] as const;
  for (const [from, url] of requests) failed += (await new Load(from, url, 1).finished()).failures.length;
  await ended;
  await shown;
}

/** Keeps everything running, with requests, until Ctrl-C. */
async function offerPage(lab: Lab): Promise<void> {
  const socket = path.join(mkdtempSync(path.join(tmpdir(), "nft-proxier-page-")), "page.sock");
  const relay = path.join(import.meta.dirname, "relay.mjs");
  const child = lab.node.spawn([process.execPath, relay, socket, String(METRICS_PORT)], { stdio: "inherit" });
  const load = new Load(lab.client, `http://${LOAD_BALANCER_IP}/`, "until-told");
  heading("The page");
  say("Run in another terminal of this machine, as the same user:");
  say(`    node deploy/demo/relay.mjs 8080 ${socket}`);
  say("Then open http://127.0.0.1:8080/status in a browser. Ctrl-C here ends everything.");
  // Every process of the demo receives the terminal's Ctrl-C and forwards it, so the signal arrives more than once.
  await new Promise((resolve) => process.on("SIGINT", resolve).on("SIGTERM", resolve));
  await load.stop().catch(() => undefined);
  child.kill("SIGTERM");
  rmSync(path.dirname(socket), { recursive: true, force: true });
}

/** Copies the examples to the directory, to be edited. Returns the paths of the manifests and of the configuration. */
function copyExamples(directory: string): { readonly manifests: string; readonly config: string } {
  const manifests = path.join(directory, "manifests");
  cpSync(path.join(examples, "manifests"), manifests, { recursive: true });
  const config = path.join(directory, "config.yaml");
  // Containers may lack the right to lower it, and the demo has no need to outlive other programs.
  const oomScore = readFileSync("/proc/self/oom_score_adj", "utf8");
  writeFileSync(config, `${readFileSync(path.join(examples, "config.yaml"), "utf8")}oomScoreAdj: ${oomScore}`);
  return { manifests, config };
}

async function story(lab: Lab, directory: string): Promise<void> {
  const { manifests, config } = copyExamples(directory);
  const [web1, web2, web3, web4, shell] = lab.pods as [Pod, Pod, Pod, Pod, Pod];
  const servers = await Promise.all([web1, web2, web3, web4].map(startPod));
  heading("A cluster in namespaces");
  say(
    `node-a ${PLAN.node.ip} runs the proxier; ${web1.name} and ${web2.name} are pods on it, ${web3.name} is on node-b`,
  );
  const proxier = new ProxierProcess(lab.node, manifests, config, options.page);
  try {
    const [ip, ip6] = await Promise.all([proxier.synced("ip", 0), proxier.synced("ip6", 0)]);
    say(`the services of deploy/examples are in the kernel: IPv4 ${ip.operations} operations, IPv6 ${ip6.operations}`);
    await showSpread(lab, shell.namespace);
    await scaleUp(lab, proxier, manifests, [web1, web2, web3, web4]);
    await takeAway(lab, proxier, manifests, [web2, web3, web4], () => stopPod(servers[0]));
    await showRuleset(lab);
    await ask(lab, shell);
    await trace(lab, shell);
    if (options.page) await offerPage(lab);
    else say("To see the same in a browser, run `npm run demo -- --page`.");
  } finally {
    await proxier.stop();
  }
}

const directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-demo-"));
const lab = await Lab.create({
  pods: [
    { name: "web-1", on: "node" },
    { name: "web-2", on: "node" },
    { name: "web-3", on: "remote" },
    { name: "web-4", on: "node" },
    { name: "shell", on: "node" },
  ],
});
try {
  await story(lab, directory);
  heading(`Done: all namespaces are removed; ${failures(failed)}`);
} finally {
  await lab.destroy();
  rmSync(directory, { recursive: true, force: true });
}
process.exitCode = failed === 0 ? 0 : 1;
