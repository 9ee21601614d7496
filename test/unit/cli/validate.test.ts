import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { main } from "../../../src/cli/commands/program.js";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { catchOutput, type Printed } from "./printed.ts";

let printed: Printed;
let directory: string;

beforeEach(() => {
  printed = catchOutput();
  directory = temporaryDirectory();
});
async function put(files: Readonly<Record<string, unknown>>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(directory, name), typeof content === "string" ? content : JSON.stringify(content, null, 2));
  }
}

interface Report {
  readonly apiVersion: string;
  readonly kind: string;
  readonly valid: boolean;
  readonly served: unknown;
  readonly findings: readonly Record<string, unknown>[];
}

async function validate(...flags: string[]): Promise<{ code: number; report: Report }> {
  const code = await main(["validate", "--manifests", directory, "-o", "json", ...flags]);
  return { code, report: JSON.parse(printed.out) as Report };
}

const service = (name: string, spec: object = {}) => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name },
  spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }], ...spec },
});
const slice = (name: string, of: string) => ({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name, labels: { "kubernetes.io/service-name": of } },
  addressType: "IPv4",
  ports: [{ port: 8080 }],
  endpoints: [{ addresses: ["10.244.0.1"] }, { addresses: ["10.244.0.2"], conditions: { ready: true } }],
});

describe("validate", () => {
  test("fields of a Node are checked like those of other objects, with line and column", async () => {
    const node = { apiVersion: "v1", kind: "Node", metadata: { name: "n" } };
    await put({
      "a.json": service("web"),
      "b.json": { ...node, spec: { podCIDRs: ["10.244.0.0/240"] }, status: { addresses: 5 } },
    });
    const { code, report } = await validate();
    expect(code).toBe(1);
    expect(report.findings).toMatchObject([
      {
        ...{ severity: "error", file: "b.json", line: 9, column: 7, object: { kind: "Node", name: "n" } },
        ...{ field: "spec.podCIDRs[0]", why: '"10.244.0.0/240" is not a CIDR' },
      },
      { line: 13, field: "status.addresses", why: "5 is not a list" },
    ]);
  });

  test("an endpoint that is the ClusterIP of another service is a note", async () => {
    const front = service("front", { clusterIP: "10.96.0.2" });
    const chained = {
      ...slice("front-1", "front"),
      endpoints: [{ addresses: ["10.244.0.9"] }, { addresses: ["10.96.0.1"] }],
    };
    await put({ "a.json": service("back"), "b.json": slice("back-1", "back"), "c.json": front, "d.json": chained });
    const { code, report } = await validate();
    expect(code).toBe(0);
    expect(report.findings).toEqual([
      {
        severity: "note",
        file: "d.json",
        line: expect.any(Number) as number,
        column: expect.any(Number) as number,
        object: { kind: "EndpointSlice", name: "default/front-1" },
        field: "endpoints",
        what: "gets no packets",
        why: "endpoint 10.96.0.1 is the ClusterIP of default/back, so it cannot be reached",
        action: "list addresses of pods, or point clients at the other service",
      },
    ]);
  });

  test("no finding exits with 0, and shows what would be served", async () => {
    await put({ "a.json": service("web"), "b.json": slice("web-1", "web") });
    const { code, report } = await validate();
    expect(report).toEqual({
      apiVersion: "nft-proxier.dev/v1",
      kind: "ValidationReport",
      directory,
      valid: true,
      served: { ip: { services: 1, endpoints: 2 }, ip6: { services: 0, endpoints: 0 } },
      findings: [],
    });
    expect(code).toBe(0);
  });

  test("text output has a line for each finding, and a summary", async () => {
    await put({ "a.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.96.0.300\n" });
    expect(await main(["validate", "--manifests", directory])).toBe(1);
    expect(printed.out.split("\n")).toEqual([
      "a.yaml:5:3: error: Service default/web: spec.ports cannot be served as written: has no port to serve. Fix: correct or remove the field",
      'a.yaml:5:14: error: Service default/web: spec.clusterIP cannot be served as written: "10.96.0.300" is not an IP address. Fix: correct or remove the field',
      "2 errors, 0 warnings, 0 notes; served: 0 services with 0 endpoints over IPv4, 0 services with 0 endpoints over IPv6",
      "",
    ]);
  });

  test.each<[string, Readonly<Record<string, unknown>>, object]>([
    [
      "a file that does not parse",
      { "a.yaml": "a: 1\nb: [1\nc: 2" },
      { severity: "error", file: "a.yaml", line: 3, column: 1, what: "nothing in the file is served" },
    ],
    [
      "a truncated file",
      { "a.yaml": "" },
      { severity: "error", file: "a.yaml", action: "write it again, or remove it" },
    ],
    [
      "an item that is not an object, in a list in JSON",
      { "a.json": { apiVersion: "v1", kind: "List", items: [service("x"), 5] } },
      { severity: "error", file: "a.json", line: 20, column: 5, why: "document 1, items[1] is not an object" },
    ],
    [
      "a second value in a JSON file",
      { "a.json": `${JSON.stringify(service("web"))}\n{"apiVersion": "v1", "metadata": {}}` },
      { severity: "error", file: "a.json", line: 2, column: 1, why: "document 2 has no kind" },
    ],
    [
      "an unsupported API version, after an empty document",
      { "a.yaml": `---\n---\n${JSON.stringify({ ...service("web"), apiVersion: "v2" })}\n` },
      {
        severity: "error",
        file: "a.yaml",
        line: 3,
        why: expect.stringContaining("Service default/web has the unsupported version v2"),
      },
    ],
    [
      "a bad port in JSON",
      { "a.json": service("web", { ports: [{ port: 80 }, { name: "b", port: 70_000 }] }) },
      {
        severity: "error",
        file: "a.json",
        line: 15,
        column: 17,
        object: { kind: "Service", name: "default/web" },
        field: "spec.ports[1].port",
        why: "70000 is not a port (1 to 65535)",
      },
    ],
    [
      "an invalid condition, in YAML",
      {
        "a.json": service("web"),
        "b.yaml": `# c\n${JSON.stringify(slice("web-1", "web")).replace("true", "maybe").replace('"conditions"', '\n"conditions"')}`,
      },
      {
        severity: "error",
        file: "b.yaml",
        line: 3,
        object: { kind: "EndpointSlice", name: "default/web-1" },
        field: "endpoints[1].conditions.ready",
        why: '"maybe" is not true or false; using false',
      },
    ],
    [
      "two services with one address",
      {
        "a.json": service("a", { externalIPs: ["1.2.3.4"] }),
        "b.json": service("b", { clusterIP: "10.96.0.2", externalIPs: ["1.2.3.4"] }),
      },
      {
        severity: "warning",
        file: "b.json",
        line: 14,
        object: { kind: "Service", name: "default/b" },
        field: "spec.externalIPs",
      },
    ],
    [
      "one object in two files",
      { "a.json": service("a"), "b.json": { apiVersion: "v1", kind: "List", items: [service("a")] } },
      {
        severity: "warning",
        file: "b.json",
        line: 5,
        object: { kind: "Service", name: "default/a" },
        action: "remove one of them",
      },
    ],
    [
      "a slice without a service",
      { "a.json": service("a"), "b.json": slice("web-1", "wbe") },
      {
        severity: "warning",
        file: "b.json",
        line: 7,
        field: 'metadata.labels["kubernetes.io/service-name"]',
        why: "there is no Service default/wbe",
      },
    ],
    ["an empty directory", {}, { severity: "error", what: "nothing is served" }],
  ])("%s: it exits with 1, and reports the place", async (_what, files, finding) => {
    await put(files);
    const { code, report } = await validate();
    expect(report.findings).toEqual([expect.objectContaining(finding)]);
    for (const field of ["what", "why", "action"]) expect(report.findings[0]?.[field]).toMatch(/./);
    expect(report.valid).toBe(false);
    expect(code).toBe(1);
  });

  test("objects that are skipped by design cause at most notes, and it exits with 0", async () => {
    await put({
      "a.json": service("a", { type: "ExternalName" }),
      "b.json": [service("b", { clusterIP: "None" }), slice("b-1", "b")].map((one) => JSON.stringify(one)).join("\n"),
      "c.yaml": "# d\n\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
    });
    const { code, report } = await validate();
    expect(report.findings).toEqual([
      expect.objectContaining({
        severity: "note",
        file: "c.yaml",
        line: 3,
        what: expect.stringContaining("ConfigMap (v1)"),
      }),
    ]);
    expect(code).toBe(0);
  });

  test("the configuration counts: external IPs that are not served conflict with nothing", async () => {
    const externalIPs = ["1.2.3.4"];
    await put({
      "a.json": service("a", { externalIPs }),
      "b.json": service("b", { clusterIP: "10.96.0.2", externalIPs }),
    });
    const config = join(directory, "config");
    await writeFile(
      config,
      "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nfeatureGates: {AllowServiceExternalIPs: false}\n",
    );
    expect((await validate("--config", config)).code).toBe(0);
  });

  test("misspelt fields of all kinds are errors with their place and the nearest name", async () => {
    await put({
      "a.json": service("web", { externalIps: ["1.2.3.4"] }),
      "b.yaml": [
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec:\n  podCidr: 10.0.0.0/24",
        "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: c}\nspec: {cidr: [10.0.0.0/24]}",
      ].join("\n---\n"),
      "c.yaml": JSON.stringify(slice("web-1", "web")).replaceAll("conditions", "condition"),
    });
    const { code, report } = await validate();
    expect(code).toBe(1);
    const error = (file: string, object: object, field: string, meant: string) =>
      expect.objectContaining({
        ...{ severity: "error", file, object, field, line: expect.any(Number) as number },
        why: expect.stringContaining(`did you mean ${meant}?`) as string,
      }) as unknown;
    expect(report.findings).toEqual([
      error("a.json", { kind: "Service", name: "default/web" }, "spec.externalIps", "externalIPs"),
      error("b.yaml", { kind: "Node", name: "n" }, "spec.podCidr", "podCIDR"),
      error("b.yaml", { kind: "ServiceCIDR", name: "c" }, "spec.cidr", "cidrs"),
      error("c.yaml", { kind: "EndpointSlice", name: "default/web-1" }, "endpoints[1].condition", "conditions"),
    ]);
  });

  test("a file in UTF-16, as PowerShell writes it, is read with its places", async () => {
    const text = `\ufeffapiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.96.0.1\n  ports: [{port: 0443}]\n  typo: 1\n`;
    await writeFile(join(directory, "a.yaml"), Buffer.from(text, "utf16le"));
    const { report } = await validate();
    expect(report).toMatchObject({ served: { ip: { services: 1 } }, findings: [{ line: 7, field: "spec.typo" }] });
  });

  test("a ServiceCIDR that overlaps pods and nodes is an error at each of them", async () => {
    const cidr = (name: string, ...cidrs: string[]) => ({
      ...{ apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDR", metadata: { name } },
      spec: { cidrs },
    });
    const node = (podCIDRs: string[], ...addresses: string[]) => ({
      ...{ apiVersion: "v1", kind: "Node", metadata: { name: `n-${podCIDRs.join()}` }, spec: { podCIDRs } },
      status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
    });
    await put({
      "a.json": cidr("kubernetes", "10.96.0.0/12", "fd00:10::/108"),
      "b.json": {
        apiVersion: "v1",
        kind: "List",
        items: [node(["10.244.0.0/24", "fd00:10::/112"], "10.97.0.1"), node([], "192.0.2.1")],
      },
      "c.json": service("web"),
      "d.json": JSON.stringify(slice("web-1", "web")).replaceAll("10.244.0.1", "10.96.3.1"),
    });
    const config = join(directory, "config");
    const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    await writeFile(config, `${head}clusterCIDR: 10.96.0.0/16,fd01::/64\n`);
    const { code, report } = await validate("--config", config);
    expect(code).toBe(1);
    expect(report.findings.map(({ severity, file, field }) => [severity, file, field])).toEqual([
      ["error", "a.json", "spec.cidrs[0]"],
      ["error", "b.json", "spec.podCIDRs[1]"],
      ["error", "b.json", "status.addresses[0].address"],
      ["error", "d.json", "endpoints"],
    ]);
    expect(report.findings[3]["why"]).toMatch(
      /^10\.96\.3\.1 is in ServiceCIDR 10\.96\.0\.0\/12: new connections .* dropped/,
    );
  });

  test("a missing directory is a finding, and exits with 1", async () => {
    const nowhere = join(directory, "nowhere");
    expect(await main(["validate", "--manifests", nowhere, "-o", "json"])).toBe(1);
    expect(JSON.parse(printed.out)).toMatchObject({ valid: false, findings: [{ severity: "error", file: nowhere }] });
  });
});
