/** /statusz and /flagz: text for people, JSON for requests in the form that kube-proxy requires. */
import { describe, expect, test } from "vitest";
import type { HttpRequest } from "../../../src/observe/http-server.js";
import { flagz, statusz } from "../../../src/observe/zpages.js";

const STATUS = {
  startedAt: Date.parse("2026-01-02T03:04:05.678Z"),
  now: Date.parse("2026-01-03T04:06:08Z"),
  version: "0.2.0",
  paths: ["/configz", "/metrics"],
};

function accepting(accept: string): HttpRequest {
  const { signal } = new AbortController();
  return { method: "GET", path: "", query: new URLSearchParams(), host: "", accept, body: Promise.resolve(""), signal };
}

describe("statusz", () => {
  test("text", () => {
    expect(statusz(accepting(""), STATUS)).toEqual({
      status: 200,
      type: "text/plain; charset=utf-8",
      body: `
kube-proxy statusz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

Started: Fri Jan  2 03:04:05 UTC 2026
Up: 25 hr 02 min 02 sec
Node version: ${process.version}
Binary version: nft-proxier 0.2.0
Emulation version: 1.36
Paths: /configz /metrics
`,
    });
  });

  test("JSON", () => {
    const reply = statusz(accepting("application/json;v=v1beta1;g=config.k8s.io;as=Statusz"), STATUS);
    expect(reply).toMatchObject({ status: 200, type: "application/json" });
    expect(JSON.parse(reply.body)).toEqual({
      kind: "Statusz",
      apiVersion: "config.k8s.io/v1beta1",
      metadata: { name: "kube-proxy" },
      startTime: "2026-01-02T03:04:05Z",
      uptimeSeconds: 90122,
      binaryVersion: "nft-proxier 0.2.0",
      emulationVersion: "1.36",
      paths: ["/configz", "/metrics"],
    });
  });

  test.each([
    ["text/plain", "text"],
    ["text/plain; charset=UTF-8", "text"],
    ["*/*", "text"],
    ["text/html, */*;q=0.1", "text"],
    ["application/json;v=other;g=config.k8s.io;as=Statusz,*/*", "text"],
    ["application/json; v=v1beta1; g=config.k8s.io; as=Statusz, text/plain", "json"],
  ])("Accept: %s gets %s", (accept, form) => {
    const { status, type } = statusz(accepting(accept), STATUS);
    expect({ status, type }).toEqual({
      status: 200,
      type: form === "json" ? "application/json" : "text/plain; charset=utf-8",
    });
  });

  test.each([
    "application/xml",
    "application/json",
    "application/json;v=v1beta1;g=config.k8s.io",
    "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
    "text/plain; charset=latin1",
    "*/*;q=0",
  ])("Accept: %s is not acceptable", (accept) => {
    expect(statusz(accepting(accept), STATUS)).toMatchObject({ status: 406 });
  });
});

describe("flagz", () => {
  const flags = "config=/var/lib/kube-proxy/config.conf\nhostname-override=\nvmodule=a=1,b=2\n";

  test("text, under kube-proxy's head", () => {
    expect(flagz(accepting("*/*"), flags)).toEqual({
      status: 200,
      type: "text/plain; charset=utf-8",
      body: `
kube-proxy flagz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
${flags}`,
    });
  });

  test("JSON", () => {
    const { body } = flagz(accepting("application/json;v=v1beta1;g=config.k8s.io;as=Flagz"), flags);
    expect(JSON.parse(body)).toEqual({
      kind: "Flagz",
      apiVersion: "config.k8s.io/v1beta1",
      metadata: { name: "kube-proxy" },
      flags: { config: "/var/lib/kube-proxy/config.conf", "hostname-override": "", vmodule: "a=1,b=2" },
    });
  });
});
