/** Our identity towards the API server, and the way to reach it: over real TLS, with files that change. */
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, connect as dial, createServer as listenTcp, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { defaultConfig } from "../../../../src/config/load.js";
import { connectToApiServer, type ConnectOptions } from "../../../../src/objects/kubernetes/connect-to-api-server.js";
import type { ApiConnection, RequestReport } from "../../../../src/objects/kubernetes/api-connection.js";
import { ConnectionSettingsError, StatusError, TransportError } from "../../../../src/objects/kubernetes/errors.js";
import { ApiServer, type ApiServerOptions, Authority } from "../../../lab/api-server/api-server.ts";
import { EVENTUALLY_MS } from "../../../lab/eventually.ts";
import { temporaryDirectory } from "../../../support/temporary-directory.ts";

let directory: string;
let api: ApiServer;
const connections: ApiConnection[] = [];
const servers: { close(): unknown }[] = [];

beforeEach(() => {
  directory = temporaryDirectory();
});

afterEach(async () => {
  for (const connection of connections.splice(0)) connection.close();
  for (const server of servers.splice(0)) server.close();
  await api?.stop();
});

async function serve(options: ApiServerOptions = {}): Promise<ApiServer> {
  api = await ApiServer.start(options);
  return api;
}

async function connect(
  settings: { kubeconfig?: string; master?: string; qps?: number; burst?: number },
  options: Partial<ConnectOptions> = {},
): Promise<ApiConnection> {
  const { kubeconfig = "", master = "", qps = 0, burst = 0 } = settings;
  const clientConnection = { ...defaultConfig().clientConnection, kubeconfig, qps, burst };
  const connection = await connectToApiServer({ config: { clientConnection, master }, environment: {}, ...options });
  connections.push(connection);
  return connection;
}

/** Writes a file in the test's directory. */
async function write(name: string, content: string): Promise<string> {
  const file = join(directory, name);
  // Like the kubelet: a new file replaces the old one.
  await writeFile(`${file}.new`, content);
  await rename(`${file}.new`, file);
  return file;
}

async function kubeconfig(user: Record<string, unknown> = {}, cluster: Record<string, unknown> = {}): Promise<string> {
  const config = JSON.parse(api.kubeconfig(user)) as { clusters: { cluster: Record<string, unknown> }[] };
  Object.assign(config.clusters[0].cluster, cluster);
  return write("kubeconfig", JSON.stringify(config));
}

async function ask(connection: ApiConnection, path = "/version"): Promise<string> {
  const { signal } = new AbortController();
  let text = "";
  for await (const chunk of connection.stream({ method: "GET", path, signal, idleMs: EVENTUALLY_MS }))
    text += chunk.toString();
  return text;
}

const failure = (asking: Promise<unknown>) =>
  asking.then(
    () => expect.unreachable("it was answered"),
    (error: unknown) => error as Error,
  );

describe("connectToApiServer: credentials", () => {
  test("a token is sent", async () => {
    await serve({ tls: {}, tokens: ["secret"] });
    const good = await connect({ kubeconfig: await kubeconfig({ token: "secret" }) });
    expect(await ask(good)).toContain("v1.36.0");
    const bad = await connect({ kubeconfig: await kubeconfig({ token: "wrong" }) });
    const error = await failure(ask(bad));
    expect(error).toBeInstanceOf(StatusError);
    expect(error).toMatchObject({ status: 401, reason: "Unauthorized" });
  });

  test("a rotating token file has priority over a token, and is read again", async () => {
    await serve({ tls: {}, tokens: ["first"] });
    await write("token", "first\n");
    const connection = await connect({ kubeconfig: await kubeconfig({ tokenFile: "token", token: "stale" }) });
    await ask(connection);
    api.tokens.clear();
    api.tokens.add("second");
    await write("token", "second\n");
    await ask(connection);
    // For a moment there is no file.
    await rm(join(directory, "token"));
    await ask(connection);
  });

  test("a missing token file is named", async () => {
    await serve();
    const connection = await connect({ kubeconfig: await kubeconfig({ tokenFile: "absent" }) });
    const error = await failure(ask(connection));
    expect(error).toBeInstanceOf(TransportError);
    expect(error.message).toContain(join(directory, "absent"));
  });

  test("a client certificate can be replaced while we run", async () => {
    await serve({ tls: {}, tokens: ["nobody has it"] });
    const issue = () => api.authority?.client({ commonName: "system:kube-proxy" });
    const write2 = async (pair = issue()) => {
      await write("client.crt", pair?.cert ?? "");
      await write("client.key", pair?.key ?? "");
    };
    await write2();
    const user = { "client-certificate": "client.crt", "client-key": "client.key" };
    const connection = await connect({ kubeconfig: await kubeconfig(user) });
    await ask(connection);
    await write2(new Authority().client({ commonName: "somebody" }));
    expect(await failure(ask(connection))).toMatchObject({ status: 401 });
    await write2();
    await ask(connection);
  });

  test("a user name and password, and impersonation, are sent", async () => {
    await serve();
    const user = { username: "jane", password: "p:w", as: "joe", "as-groups": ["a", "b"] };
    await ask(await connect({ kubeconfig: await kubeconfig(user) }));
    const [{ headers }] = api.requests;
    expect(headers.authorization).toBe(`Basic ${Buffer.from("jane:p:w").toString("base64")}`);
    expect(headers["impersonate-user"]).toBe("joe");
    expect(headers["impersonate-group"]).toBe("a, b");
  });

  test("an exec plugin's token is used until it expires", async () => {
    await serve({ tls: {}, tokens: ["from-plugin"] });
    const plugin = `
      const fs = require("node:fs");
      fs.appendFileSync(${JSON.stringify(join(directory, "calls"))}, process.env.KUBERNETES_EXEC_INFO + "\\n");
      console.log(JSON.stringify({ apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential",
        status: { token: "from-plugin" } }));`;
    await write("plugin.cjs", plugin);
    const exec = {
      apiVersion: "client.authentication.k8s.io/v1",
      command: process.execPath,
      args: [join(directory, "plugin.cjs")],
      interactiveMode: "Never",
    };
    const connection = await connect({ kubeconfig: await kubeconfig({ exec }) });
    await ask(connection);
    await ask(connection);
    const calls = (await readFile(join(directory, "calls"), "utf8")).trim().split("\n");
    expect(calls).toHaveLength(1);
    expect(JSON.parse(calls[0])).toMatchObject({ kind: "ExecCredential", spec: { interactive: false } });
  });

  test("an exec plugin can return a client certificate", async () => {
    await serve({ tls: {}, tokens: ["nobody has it"] });
    const pair = api.authority?.client({ commonName: "system:kube-proxy" });
    const status = { clientCertificateData: pair?.cert, clientKeyData: pair?.key };
    await write("answer.json", JSON.stringify({ kind: "ExecCredential", status }));
    const exec = {
      apiVersion: "client.authentication.k8s.io/v1",
      command: "cat",
      args: [join(directory, "answer.json")],
    };
    await ask(await connect({ kubeconfig: await kubeconfig({ exec }) }));
  });

  test("a plugin's token that the server rejects is fetched again", async () => {
    await serve({ tokens: ["second"] });
    await write("answer.json", JSON.stringify({ kind: "ExecCredential", status: { token: "first" } }));
    const exec = {
      apiVersion: "client.authentication.k8s.io/v1",
      command: "cat",
      args: [join(directory, "answer.json")],
    };
    const connection = await connect({ kubeconfig: await kubeconfig({ exec }) });
    expect(await failure(ask(connection))).toMatchObject({ status: 401 });
    await write("answer.json", JSON.stringify({ kind: "ExecCredential", status: { token: "second" } }));
    await ask(connection);
  });

  test("the reason why an exec plugin fails is reported", async () => {
    await serve();
    const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "./no-such-plugin" };
    const error = await failure(ask(await connect({ kubeconfig: await kubeconfig({ exec }) })));
    expect(error.message).toContain(`${directory}/no-such-plugin`);
  });
});

describe("connectToApiServer: address of the API server", () => {
  test("--master alone has no credentials", async () => {
    await serve();
    expect(await ask(await connect({ master: api.url }))).toContain("v1.36.0");
    expect(api.requests[0].headers.authorization).toBeUndefined();
  });

  test("--master overrides the kubeconfig's server, and keeps the credentials", async () => {
    await serve({ tls: {}, tokens: ["secret"] });
    const file = await kubeconfig({ token: "secret" }, { server: "https://192.0.2.1:1" });
    await ask(await connect({ kubeconfig: file, master: api.url }));
  });

  test("inside a cluster the service account's token and authority are used", async () => {
    await serve({ tls: {}, tokens: ["sa"] });
    const { hostname, port } = new URL(api.url);
    await write("token", "sa");
    await write("ca.crt", api.ca);
    const environment = { KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port };
    await ask(await connect({}, { environment, serviceAccountDirectory: directory }));
  });

  test("outside of a cluster the message says what to set", async () => {
    const error = await failure(connect({}));
    expect(error).toBeInstanceOf(ConnectionSettingsError);
    expect(error.message).toContain("Set clientConnection.kubeconfig");
    const environment = { KUBERNETES_SERVICE_HOST: "10.96.0.1", KUBERNETES_SERVICE_PORT: "443" };
    const absent = await failure(connect({}, { environment, serviceAccountDirectory: directory }));
    expect(absent.message).toContain(`${directory}/token cannot be read`);
  });

  test("the address may have a path", async () => {
    await serve();
    const prefix = createServer((request, response) => {
      response.end(`seen ${request.url ?? ""}`);
    });
    const port = await listening(prefix);
    const file = await kubeconfig({}, { server: `http://127.0.0.1:${port}/k8s/clusters/c-1/` });
    expect(await ask(await connect({ kubeconfig: file }))).toBe("seen /k8s/clusters/c-1/version");
  });

  test("the address may be an IPv6 address", async () => {
    await serve({ host: "::1", tls: {} });
    await ask(await connect({ kubeconfig: await kubeconfig() }));
  });
});

describe("connectToApiServer: TLS", () => {
  test.each<[string, NonNullable<ApiServerOptions["tls"]>, RegExp]>([
    [
      "a certificate that has expired",
      { notAfter: new Date(Date.now() - 60_000) },
      /has expired; check it and the clocks/,
    ],
    ["a certificate for other hosts", { hosts: ["elsewhere.example"] }, /does not match the name; check server/],
  ])("%s is refused with a readable message", async (_what, tls, words) => {
    await serve({ tls });
    const error = await failure(ask(await connect({ kubeconfig: await kubeconfig() })));
    expect(error).toBeInstanceOf(TransportError);
    expect(error.message).toMatch(words);
    expect(api.requests).toEqual([]);
  });

  test("an untrusted authority is refused, and a new one in the file is trusted", async () => {
    await serve({ tls: {} });
    await write("ca.crt", new Authority().cert);
    const cluster = { "certificate-authority-data": undefined, "certificate-authority": "ca.crt" };
    const connection = await connect({ kubeconfig: await kubeconfig({}, cluster) });
    const error = await failure(ask(connection));
    expect(error.message).toMatch(/check certificate-authority/);
    await write("ca.crt", api.ca);
    await ask(connection);
  });

  test("without an authority, those of the system are used", async () => {
    await serve({ tls: {} });
    const connection = await connect({ kubeconfig: await kubeconfig({}, { "certificate-authority-data": undefined }) });
    expect((await failure(ask(connection))).message).toMatch(/check certificate-authority/);
  });

  test("a refused certificate names the field of the kubeconfig, and no option of Node", async () => {
    const server = createTlsServer(new Authority().server({ commonName: "kube-apiserver", hosts: ["127.0.0.1"] }));
    await serve({ tls: {} });
    const url = `https://127.0.0.1:${await listening(server)}`;
    const file = await kubeconfig({}, { server: url, "certificate-authority-data": undefined });
    const reason = "its certificate comes from an untrusted authority; check certificate-authority";
    expect((await failure(ask(await connect({ kubeconfig: file })))).message).toBe(
      `${reason} (unable to verify the first certificate)`,
    );
  });

  test("tls-server-name names the expected certificate", async () => {
    await serve({ tls: { hosts: ["kubernetes.default.svc"] } });
    await ask(await connect({ kubeconfig: await kubeconfig({}, { "tls-server-name": "kubernetes.default.svc" }) }));
  });

  test("insecure-skip-tls-verify accepts any certificate", async () => {
    await serve({ tls: { hosts: ["elsewhere.example"] } });
    const cluster = { "certificate-authority-data": undefined, "insecure-skip-tls-verify": true };
    await ask(await connect({ kubeconfig: await kubeconfig({}, cluster) }));
  });

  test("a server without TLS is reported", async () => {
    await serve();
    const file = await kubeconfig({}, { server: api.url.replace("http:", "https:") });
    expect(await failure(ask(await connect({ kubeconfig: file })))).toBeInstanceOf(TransportError);
  });
});

describe("connectToApiServer: proxies", () => {
  test("proxy-url is used, with end-to-end TLS", async () => {
    await serve({ tls: {}, tokens: ["secret"] });
    const { port, targets } = await connectProxy();
    const file = await kubeconfig({ token: "secret" }, { "proxy-url": `http://127.0.0.1:${port}` });
    expect(await ask(await connect({ kubeconfig: file }))).toContain("v1.36.0");
    expect(targets).toEqual([new URL(api.url).host]);
  });

  test("proxy-url may name a SOCKS proxy", async () => {
    await serve({ tls: {}, tokens: ["secret"] });
    const { port, targets } = await socksProxy();
    const file = await kubeconfig({ token: "secret" }, { "proxy-url": `socks5://127.0.0.1:${port}` });
    expect(await ask(await connect({ kubeconfig: file }))).toContain("v1.36.0");
    expect(targets).toEqual([new URL(api.url).host]);
  });

  test("an unreachable proxy is reported as the reason", async () => {
    await serve({ tls: {} });
    const file = await kubeconfig({}, { "proxy-url": "http://127.0.0.1:1" });
    expect((await failure(ask(await connect({ kubeconfig: file })))).message).toContain("127.0.0.1:1");
  });
});

test.each([{ exec: { apiVersion: "client.authentication.k8s.io/v1", command: "/bin/false" } }, {}])(
  "a duplicate key in a kubeconfig reveals no token, with %j",
  async (user) => {
    const { port } = await socksProxy();
    const server = await listening(createServer((request) => request.destroy()));
    const lines = [
      "current-context: c",
      "contexts: [{name: c, context: {cluster: k, user: u}}]",
      `clusters: [{name: k, cluster: {server: "http://127.0.0.1:${server}", proxy-url: "socks5://127.0.0.1:${port}"}}]`,
      "users:",
      "- name: u",
      "  user:",
      `    exec: ${JSON.stringify("exec" in user ? user.exec : null)}`,
      "    token: s3cr3t",
      "    token: s3cr3t",
    ];
    const error = await failure(connect({ kubeconfig: await write("kubeconfig", lines.join("\n")) }).then(ask));
    expect(error).toBeInstanceOf(TransportError);
    expect(error.message).not.toContain("s3cr3t");
  },
);

describe("connectToApiServer: requests", () => {
  test("each request is counted as by client-go", async () => {
    await serve();
    const reports: RequestReport[] = [];
    const connection = await connect({ master: api.url }, { onRequest: (report) => reports.push(report) });
    await ask(connection);
    await failure(ask(connection, "/nowhere"));
    await api.down();
    await failure(ask(connection));
    const { host } = new URL(api.url);
    const codes = ["200", "404", "<error>"];
    expect(reports).toEqual(
      codes.map((code) => ({ code, method: "GET", verb: "GET", host, seconds: expect.any(Number) as number })),
    );
  });

  test("requests stay within qps and burst", async () => {
    await serve();
    const connection = await connect({ master: api.url, qps: 20, burst: 2 });
    const from = performance.now();
    await Promise.all([1, 2, 3, 4, 5, 6].map(() => ask(connection)));
    // The first two start at once, the other four 50 ms apart.
    expect(performance.now() - from).toBeGreaterThanOrEqual(190);
  });

  test("a connection is reused, and one that the server has closed does no harm", async () => {
    await serve();
    const connection = await connect({ master: api.url });
    await ask(connection);
    await api.down();
    await api.up();
    await ask(connection);
  });

  test("a long list is compressed", async () => {
    await serve();
    for (let i = 0; i < 400; i++) {
      api.put({
        kind: "Service",
        metadata: { namespace: "a", name: `s-${i}`, annotations: { text: "x".repeat(500) } },
      });
    }
    const connection = await connect({ master: api.url });
    const list = JSON.parse(await ask(connection, "/api/v1/services")) as { items: unknown[] };
    expect(list.items).toHaveLength(400);
    expect(api.requests[0].headers["accept-encoding"]).toBe("gzip");
  });
});

test("client-node is not loaded if none of it is needed", async () => {
  vi.doMock("@kubernetes/client-node", () => {
    throw new Error("loaded");
  });
  try {
    await serve({ tls: {}, tokens: ["secret"] });
    await ask(await connect({ kubeconfig: await kubeconfig({ token: "secret" }) }));
  } finally {
    vi.doUnmock("@kubernetes/client-node");
  }
});

async function listening(server: Server): Promise<number> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

function join2(a: Socket, b: Socket): void {
  for (const [from, to] of [
    [a, b],
    [b, a],
  ]) {
    from.pipe(to);
    from.on("error", () => to.destroy());
    from.on("close", () => to.destroy());
  }
}

/** A proxy that supports CONNECT. */
async function connectProxy(): Promise<{ port: number; targets: string[] }> {
  const targets: string[] = [];
  const proxy = createServer();
  proxy.on("connect", (request: IncomingMessage, client: Socket) => {
    targets.push(request.url ?? "");
    const { hostname, port } = new URL(`http://${request.url}`);
    const upstream = dial(Number(port), hostname, () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      join2(client, upstream);
    });
  });
  return { port: await listening(proxy), targets };
}

/** SOCKS 5 without authentication, for IPv4 and names. */
async function socksProxy(): Promise<{ port: number; targets: string[] }> {
  const targets: string[] = [];
  const proxy = listenTcp((client) => {
    client.once("data", () => {
      client.write(Buffer.from([5, 0]));
      client.once("data", (request: Buffer) => {
        const named = request[3] === 3;
        const end = named ? 5 + request[4] : 8;
        const host = named ? request.subarray(5, end).toString() : [...request.subarray(4, 8)].join(".");
        const port = request.readUInt16BE(end);
        targets.push(`${host}:${port}`);
        const upstream = dial(port, host, () => {
          client.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
          join2(client, upstream);
        });
      });
    });
  });
  return { port: await listening(proxy), targets };
}
