import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { ConnectionSettingsError } from "../../../../src/objects/kubernetes/errors.js";
import { readKubeconfig, serverUrl } from "../../../../src/objects/kubernetes/kubeconfig.js";
import { proxyFromEnvironment } from "../../../../src/objects/kubernetes/proxy.js";
import { temporaryDirectory } from "../../../support/temporary-directory.ts";

const KUBEADM = new URL("fixtures/kubeadm-kubeconfig.conf", import.meta.url).pathname;
const PEM = Buffer.from("-----BEGIN CERTIFICATE-----\n").toString("base64");

let directory: string;
let file: string;

beforeEach(() => {
  directory = temporaryDirectory();
  file = join(directory, "config");
});

/** Reads a kubeconfig with these fields of its cluster and user. */
async function read(cluster: object = {}, user: object = {}, master = "") {
  const config = {
    "current-context": "c",
    contexts: [{ name: "c", context: { cluster: "k", user: "u" } }],
    clusters: [{ name: "k", cluster: { server: "https://192.0.2.1:6443", ...cluster } }],
    users: [{ name: "u", user }],
  };
  return readText(JSON.stringify(config), master);
}

async function readText(text: string, master = "") {
  await writeFile(file, text);
  return readKubeconfig(file, master);
}

const refusal = async (reading: Promise<unknown>) => {
  const error = await reading.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConnectionSettingsError);
  return (error as Error).message.replaceAll(directory, "DIR");
};

describe("readKubeconfig: a kubeconfig", () => {
  test("kubeadm's one for kube-proxy has an authority and a token in files that rotate", async () => {
    const { cluster, user } = await readKubeconfig(KUBEADM, "");
    expect(cluster.server.href).toBe("https://control-plane.example:6443/");
    expect(cluster.authority).toEqual({ file: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" });
    expect(user.tokenFile).toBe("/var/run/secrets/kubernetes.io/serviceaccount/token");
    expect([user.exec, user.authProvider]).toEqual([undefined, false]);
  });

  test("--master overrides its server", async () => {
    const { cluster, user } = await readKubeconfig(KUBEADM, "https://192.0.2.9");
    expect(cluster.server.host).toBe("192.0.2.9");
    expect(cluster.authority).toBeDefined();
    expect(user.tokenFile).not.toBe("");
  });

  test("its file names are relative to its directory", async () => {
    const { cluster, user } = await read(
      { "certificate-authority": "pki/ca.crt" },
      { "client-certificate": "pki/c.crt", "client-key": "/etc/c.key", tokenFile: "token" },
    );
    expect(cluster.authority).toEqual({ file: join(directory, "pki/ca.crt") });
    expect(user.certificate).toEqual({ file: join(directory, "pki/c.crt") });
    expect(user.key).toEqual({ file: "/etc/c.key" });
    expect(user.tokenFile).toBe(join(directory, "token"));
  });

  test("data has priority over a file", async () => {
    const { cluster } = await read({ "certificate-authority": "x", "certificate-authority-data": PEM });
    expect(cluster.authority).toEqual({ text: "-----BEGIN CERTIFICATE-----\n" });
  });

  test("impersonation is read", async () => {
    const { user } = await read({}, { as: "jane", "as-groups": ["a", "b"], "as-user-extra": { Scope: ["x"] } });
    expect(user.impersonation).toEqual({
      "Impersonate-User": "jane",
      "Impersonate-Group": ["a", "b"],
      "Impersonate-Extra-scope": ["x"],
    });
  });

  test("a plugin is recognised", async () => {
    expect((await read({}, { exec: { command: "aws" } })).user.exec?.command).toBe("aws");
    expect((await read({}, { "auth-provider": { name: "oidc" } })).user.authProvider).toBe(true);
  });

  test("a context without a user is anonymous", async () => {
    const text =
      "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: http://h}}]";
    expect((await readText(text)).user.token).toBe("");
  });
});

describe("readKubeconfig: an unusable kubeconfig is reported with the place and what to do", () => {
  test("a missing file", async () => {
    expect(await refusal(readKubeconfig(join(directory, "none"), ""))).toBe(
      "kubeconfig DIR/none: the file does not exist. Set clientConnection.kubeconfig to a kubeconfig, or leave it empty inside a cluster",
    );
  });

  test("a directory", async () => {
    expect(await refusal(readKubeconfig(directory, ""))).toContain("EISDIR");
  });

  test.each([
    ["invalid YAML", "a: [", "kubeconfig DIR/config: is not YAML: BAD_INDENT at line 1, column 5"],
    ["empty", "", "kubeconfig DIR/config: is not a kubeconfig: it has no fields"],
    [
      "no current context",
      "contexts: [{name: a}, {name: b}]",
      'kubeconfig DIR/config: current-context is empty; use one of "a", "b"',
    ],
    [
      "an unknown context",
      "current-context: x\ncontexts: [{name: a}]",
      'kubeconfig DIR/config: current-context "x" is not in contexts; use one of "a"',
    ],
    [
      "an unknown cluster",
      "current-context: a\ncontexts: [{name: a, context: {cluster: k}}]",
      'kubeconfig DIR/config: contexts[a].context.cluster "k" is not in clusters; clusters has no entries',
    ],
    [
      "a number instead of a name",
      "current-context: 1",
      "kubeconfig DIR/config: current-context is not text; put it in quotes",
    ],
  ])("%s", async (_what, text, message) => {
    const said = await refusal(readText(text));
    expect(said.startsWith(message)).toBe(true);
  });

  test.each([
    ["an unknown alias", "token: *s3cr3t"],
    ["text after a value", 'token: "s3cr3t" s3cr3t'],
    ["a block header with more text", "token: |s3cr3t\n  x"],
    ["an unknown escape", 'token: "\\s3cr3t"'],
    ["an unexpected line", "a: b\ns3cr3t\nc: d"],
    ["a control character", "%s3cr3t\n---\n@s3cr3t"],
  ])("a kubeconfig with %s is reported without its text", async (_what, text) => {
    const said = await refusal(readText(`current-context: x\n${text}\n`));
    expect(said).toMatch(/^kubeconfig DIR\/config: is not YAML: /);
    expect(said).not.toContain("cr3t");
  });

  test.each(["127.0.0.1:3128", "proxy", "http//proxy:1", "ftp://user:s3cr3t@proxy:21", "http://", "http:proxy"])(
    "the proxy-url %s is an error, and its text is not shown",
    async (url) => {
      expect(await refusal(read({ "proxy-url": url }))).toBe(
        "kubeconfig DIR/config: clusters[k].cluster.proxy-url is not the URL of a proxy; " +
          "set it to http://host:port, https://host:port or socks5://host:port",
      );
    },
  );

  test.each(["http://p:1", "https://user:word@p", "socks5://p:1080"])("the proxy-url %s is accepted", async (url) => {
    expect((await read({ "proxy-url": url })).cluster.proxyUrl).toBe(url);
  });

  test("insecure-skip-tls-verify together with an authority", async () => {
    for (const authority of [{ "certificate-authority": "ca.crt" }, { "certificate-authority-data": PEM }]) {
      expect(await refusal(read({ "insecure-skip-tls-verify": true, ...authority }))).toBe(
        "kubeconfig DIR/config: clusters[k].cluster.insecure-skip-tls-verify is set together with certificate-authority; " +
          "remove one of the two",
      );
    }
  });

  test("a plugin without a command", async () => {
    expect(await refusal(read({}, { exec: { apiVersion: "x" } }))).toBe(
      "kubeconfig DIR/config: users[u].user.exec.command is empty; set it to the program that issues credentials",
    );
  });

  test("no server", async () => {
    expect(await refusal(read({ server: "" }))).toBe(
      "kubeconfig DIR/config: clusters[k].cluster.server is empty; set it to https://host:port of the API server",
    );
  });

  test("an invalid server URL", async () => {
    expect(await refusal(read({ server: "ftp://h" }))).toBe(
      'kubeconfig DIR/config: clusters[k].cluster.server: "ftp://h" is not the URL of an API server (https://host:port)',
    );
    expect(await refusal(read({}, {}, "https://"))).toBe(
      '--master: "https://" is not the URL of an API server (https://host:port)',
    );
  });

  test("a certificate without its key", async () => {
    expect(await refusal(read({}, { "client-certificate": "c" }))).toBe(
      "kubeconfig DIR/config: users[u].user.client-key is missing, although client-certificate is set; set client-key too",
    );
  });

  test("invalid certificate data", async () => {
    expect(await refusal(read({ "certificate-authority-data": "aGVsbG8=" }))).toBe(
      "kubeconfig DIR/config: clusters[k].cluster.certificate-authority-data is not a PEM file in base64",
    );
  });
});

test.each([
  ["https://h:1", false, "https://h:1/"],
  ["10.0.0.1:8080", false, "http://10.0.0.1:8080/"],
  ["10.0.0.1:6443", true, "https://10.0.0.1:6443/"],
  ["localhost", false, "http://localhost/"],
  ["[fd00::1]:6443", true, "https://[fd00::1]:6443/"],
  ["https://h/k8s/clusters/c", false, "https://h/k8s/clusters/c"],
])("server %s (TLS settings: %s) is %s", (text, tls, url) => {
  expect(serverUrl(text, tls, "here").href).toBe(url);
});

describe("readKubeconfig: a proxy from the environment", () => {
  const via = (server: string, environment: Record<string, string>) =>
    proxyFromEnvironment(new URL(server), environment);
  const HTTPS_PROXY = "http://proxy:3128";

  test("the same variables as in any Go program are used", () => {
    expect(via("https://api:6443", { HTTPS_PROXY })).toBe(HTTPS_PROXY);
    expect(via("https://api:6443", { https_proxy: "proxy:3128" })).toBe(HTTPS_PROXY);
    expect(via("http://api", { HTTPS_PROXY })).toBe("");
    expect(via("http://api", { HTTP_PROXY: "http://p" })).toBe("http://p");
    expect(via("https://api", {})).toBe("");
  });

  test("an invalid one is an error, because the connection would otherwise be direct", () => {
    for (const proxy of ["http://", "ftp://user:s3cr3t@proxy", "proxy:port"]) {
      expect(() => via("https://api:6443", { HTTPS_PROXY: proxy })).toThrow(
        /^environment variable HTTPS_PROXY is not the URL of a proxy; set it to http:\/\/host:port/,
      );
    }
  });

  test.each([
    ["10.96.0.1", "10.96.0.0/12", true],
    ["10.112.0.1", "10.96.0.0/12", false],
    ["fd00::1", "fd00::/8", true],
    ["10.0.0.1", "10.0.0.1", true],
    ["10.0.0.1", "10.0.0.1:6443", true],
    ["10.0.0.1", "10.0.0.1:443", false],
    ["api.example.com", "example.com", true],
    ["api.example.com", ".example.com", true],
    ["example.com", ".example.com", false],
    ["example.com", "example.com", true],
    ["notexample.com", "example.com", false],
    ["api.example.com", "other, *", true],
    ["api.example.com", "svc,.cluster.local,10.0.0.0/8", false],
    ["localhost", "", true],
    ["127.0.0.1", "", true],
  ])("%s with NO_PROXY=%s is direct: %s", (host, exceptions, direct) => {
    const server = `https://${host.includes(":") ? `[${host}]` : host}:6443`;
    expect(via(server, { HTTPS_PROXY, NO_PROXY: exceptions }) === "").toBe(direct);
  });
});
