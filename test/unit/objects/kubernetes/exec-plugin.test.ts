/** Credentials plugins, run as real programs. */
import { readdir, readFile, readlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { defaultConfig } from "../../../../src/config/load.js";
import { connectToApiServer } from "../../../../src/objects/kubernetes/connect-to-api-server.js";
import type { ApiConnection } from "../../../../src/objects/kubernetes/api-connection.js";
import { ApiServer } from "../../../lab/api-server/api-server.ts";
import { eventually, EVENTUALLY_MS } from "../../../lab/eventually.ts";
import { temporaryDirectory } from "../../../support/temporary-directory.ts";

const API_VERSION = "client.authentication.k8s.io/v1";
let directory: string;
let api: ApiServer;
const connections: ApiConnection[] = [];

beforeEach(async () => {
  directory = temporaryDirectory();
  api = await ApiServer.start({ tls: {}, tokens: ["issued"] });
});

afterEach(async () => {
  for (const connection of connections.splice(0)) connection.close();
  await api.stop();
});

/** Writes a shell script as a plugin. */
async function plugin(script: string): Promise<string> {
  await writeFile(join(directory, "plugin"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return "./plugin";
}

function issued(fields: object = { token: "issued" }): string {
  return `echo '${JSON.stringify({ apiVersion: API_VERSION, kind: "ExecCredential", status: fields })}'`;
}

interface Settings {
  readonly exec: Readonly<Record<string, unknown>>;
  readonly cluster?: Readonly<Record<string, unknown>>;
  readonly timeLimitMs?: number;
}

async function connect({ exec, cluster = {}, timeLimitMs }: Settings): Promise<ApiConnection> {
  const config = JSON.parse(
    api.kubeconfig({ exec: { apiVersion: API_VERSION, interactiveMode: "Never", ...exec } }),
  ) as {
    clusters: { cluster: Record<string, unknown> }[];
  };
  Object.assign(config.clusters[0].cluster, cluster);
  const kubeconfig = join(directory, "kubeconfig");
  await writeFile(kubeconfig, JSON.stringify(config));
  const clientConnection = { ...defaultConfig().clientConnection, kubeconfig, qps: -1, burst: 0 };
  const connection = await connectToApiServer({
    config: { clientConnection, master: "" },
    environment: {},
    pluginTimeLimitMs: timeLimitMs,
  });
  connections.push(connection);
  return connection;
}

async function ask(connection: ApiConnection): Promise<void> {
  const { signal } = new AbortController();
  await connection.send({ method: "GET", path: "/version", signal, idleMs: EVENTUALLY_MS });
}

async function refusal(connection: ApiConnection): Promise<string> {
  return ask(connection).then(
    () => expect.unreachable("it was answered"),
    (error: unknown) => (error as Error).message.replaceAll(directory, "DIR"),
  );
}

/** Commands of the processes started in the test's directory, identified by a variable that the plugin gets. */
async function running(): Promise<string[]> {
  const found: string[] = [];
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const environment = await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "");
    if (!environment.split("\0").includes(`OF_TEST=${directory}`)) continue;
    found.push(await readlink(`/proc/${pid}/exe`).catch(() => pid));
  }
  return found;
}

const OF_TEST = () => [{ name: "OF_TEST", value: directory }];

describe("KUBERNETES_EXEC_INFO", () => {
  const seen = async () =>
    JSON.parse(await readFile(join(directory, "info"), "utf8")) as { spec: { cluster?: Record<string, unknown> } };
  const tell = () => plugin(`echo "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/info"\n${issued()}`);

  test("has the cluster with provideClusterInfo, in client-go's form", async () => {
    const command = await tell();
    const extensions = [
      { name: "other", extension: { a: 1 } },
      { name: "client.authentication.k8s.io/exec", extension: { audience: "one" } },
    ];
    const cluster = { server: `${api.url}/`, "tls-server-name": "localhost", extensions };
    await ask(await connect({ exec: { command, args: null, env: null, provideClusterInfo: true }, cluster }));
    expect(await seen()).toEqual({
      apiVersion: API_VERSION,
      kind: "ExecCredential",
      spec: {
        interactive: false,
        cluster: {
          server: `${api.url}/`,
          "tls-server-name": "localhost",
          "certificate-authority-data": Buffer.from(api.ca).toString("base64"),
          config: { audience: "one" },
        },
      },
    });
  });

  test("has the contents of a certificate authority file, insecure-skip-tls-verify and proxy-url", async () => {
    const command = await tell();
    await writeFile(join(directory, "ca.crt"), api.ca);
    const exec = { command, provideClusterInfo: true };
    const inFile = { "certificate-authority-data": undefined, "certificate-authority": "ca.crt" };
    await ask(await connect({ exec, cluster: inFile }));
    expect((await seen()).spec.cluster).toMatchObject({
      "certificate-authority-data": Buffer.from(api.ca).toString("base64"),
      config: null,
    });
    const insecure = {
      "certificate-authority-data": undefined,
      "insecure-skip-tls-verify": true,
      "proxy-url": "http://127.0.0.1:1",
    };
    // The proxy is down, but the plugin has already run.
    await refusal(await connect({ exec, cluster: insecure }));
    expect((await seen()).spec.cluster).toEqual({
      server: api.url,
      "insecure-skip-tls-verify": true,
      "proxy-url": "http://127.0.0.1:1",
      config: null,
    });
  });

  test("has no cluster without provideClusterInfo", async () => {
    await ask(await connect({ exec: { command: await tell() } }));
    expect((await seen()).spec).toEqual({ interactive: false });
  });
});

describe("a plugin that fails", () => {
  test.each(["no-such-plugin-zz", "./no-such-plugin"])("%s is missing: installHint is printed", async (command) => {
    const exec = { command, installHint: "Install the plugin\nfrom its vendor" };
    const shown = command.replace("./", "DIR/");
    expect(await refusal(await connect({ exec }))).toBe(
      `no credentials: the credentials plugin ${shown} is not found; Install the plugin from its vendor`,
    );
  });

  test("its stderr is shown without secrets, up to a limit", async () => {
    const command = await plugin(
      `for i in $(seq 10000); do echo "debug: line $i"; done >&2\necho "login failed: token=s3cr3t-t0ken
password: hunter2" >&2\nexit 7`,
    );
    const message = await refusal(await connect({ exec: { command } }));
    expect(message).toMatch(
      /^no credentials: the credentials plugin DIR\/plugin failed with exit code 7; its stderr: \.\.\./,
    );
    expect(message.length).toBeLessThan(700);
    expect(message).not.toContain("\n");
    expect(message).not.toMatch(/s3cr3t|hunter2/);
  });

  const strange: readonly (readonly [string, string, string])[] = [
    ["no JSON", "echo 's3cr3t is no JSON'", "did not write an ExecCredential in JSON to stdout"],
    ["no status", `echo '{"kind":"ExecCredential"}'`, "returned no status"],
    ["no status", issued({}), "returned neither a token nor a certificate"],
    ["a key without a certificate", issued({ clientKeyData: "s3cr3t" }), "returned a certificate or a key, not both"],
    [
      "another version",
      `echo '{"apiVersion":"x/v9","status":{"token":"s3cr3t"}}'`,
      `did not answer in version ${API_VERSION}`,
    ],
    [
      "an invalid time",
      issued({ token: "s3cr3t", expirationTimestamp: "s3cr3t" }),
      "returned an invalid expirationTimestamp",
    ],
    ["no time", issued({ token: "s3cr3t", expirationTimestamp: "s3cr3t" }), "returned an invalid expirationTimestamp"],
    ["without end", "yes s3cr3t", "wrote more than 1 MiB and was killed"],
  ];
  test.each(strange)("a plugin that writes %s is refused, without its output", async (_what, script, message) => {
    const exec = { command: await plugin(script) };
    expect(await refusal(await connect({ exec }))).toBe(`no credentials: the credentials plugin DIR/plugin ${message}`);
  });

  test("a plugin that hangs is killed with its children, reported, and never runs twice at a time", async () => {
    const command = await plugin(`sleep 600 & echo "waiting for a browser" >&2\nsleep 601`);
    const connection = await connect({ exec: { command, env: OF_TEST() }, timeLimitMs: 5_000 });
    // The time limit is over when the test says so: a busy machine may need longer to start the plugin.
    const { setTimeout } = globalThis;
    const limits: (() => void)[] = [];
    const setting = vi.spyOn(globalThis, "setTimeout").mockImplementation((work, ms, ...args) => {
      if (ms !== 5_000) return setTimeout(work, ms, ...args);
      limits.push(work);
      return setTimeout(() => undefined);
    });
    onTestFinished(() => setting.mockRestore());
    const asking = Promise.all(Array.from({ length: 12 }, () => refusal(connection)));
    // The shell and its two children.
    await eventually(async () => expect(await running()).toHaveLength(3));
    expect(limits).toHaveLength(1);
    limits[0]();
    const messages = await asking;
    expect(new Set(messages)).toEqual(
      new Set([
        "no credentials: the credentials plugin DIR/plugin did not end within 5s and was killed; its stderr: waiting for a browser",
      ]),
    );
    await eventually(async () => expect(await running()).toEqual([]));
  });

  test("a plugin is abandoned in time if a child of it holds its output open", async () => {
    const command = await plugin(`setsid sleep 5 &\n${issued()}`);
    const connection = await connect({ exec: { command, env: OF_TEST() }, timeLimitMs: 500 });
    expect(await refusal(connection)).toContain("did not end within 500ms and was killed");
  });

  test("a plugin is accepted if a child of it holds only stderr open", async () => {
    const command = await plugin(`setsid sleep 600 > /dev/null &\necho $! > "$(dirname "$0")/pid"\n${issued()}`);
    onTestFinished(async () => {
      process.kill(Number(await readFile(join(directory, "pid"), "utf8")), "SIGKILL");
    });
    const connection = await connect({ exec: { command, env: OF_TEST() }, timeLimitMs: EVENTUALLY_MS });
    await ask(connection);
  });

  test("closing the connection kills the plugin", async () => {
    const command = await plugin("sleep 600");
    const connection = await connect({ exec: { command, env: OF_TEST() } });
    const asking = refusal(connection);
    await eventually(async () => expect(await running()).toHaveLength(2));
    connection.close();
    expect(await asking).toContain("failed with SIGKILL");
    await eventually(async () => expect(await running()).toEqual([]));
  });
});

test("simultaneous requests share one run, and its token until it expires", async () => {
  const expires = (ms: number) => new Date(Date.now() + ms).toISOString();
  const script = (expirationTimestamp: string) =>
    plugin(`echo run >> "$(dirname "$0")/runs"\n${issued({ token: "issued", expirationTimestamp })}`);
  const runs = async () => (await readFile(join(directory, "runs"), "utf8")).trim().split("\n").length;
  const connection = await connect({ exec: { command: await script(expires(600_000)) } });
  await Promise.all(Array.from({ length: 8 }, () => ask(connection)));
  await ask(connection);
  expect(await runs()).toBe(1);
  const late = await connect({ exec: { command: await script(expires(-1_000)) } });
  await ask(late);
  await ask(late);
  expect(await runs()).toBe(3);
});
