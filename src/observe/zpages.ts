/**
 * /statusz and /flagz, in the format of k8s.io/apiserver/pkg/server/{statusz,flagz} of release 1.36: text for people, and JSON
 * (config.k8s.io/v1beta1) for clients that ask for exactly that.
 */
import { type WholeReply, type HttpRequest, jsonReply, textReply } from "./http-server.js";
import { KUBE_PROXY_VERSION } from "./kube-proxy-metrics.js";

/** Our name on these pages, so that users who look for kube-proxy find it. */
const COMPONENT = "kube-proxy";
const GROUP = "config.k8s.io";
const VERSION = "v1beta1";
const WARNING =
  "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for " +
  "debugging purposes only.";

interface ProcessStatus {
  /** Unix ms. */
  readonly startedAt: number;
  /** Unix ms. */
  readonly now: number;
  /** The version of this program, such as "0.2.0". */
  readonly version: string;
  /** Other paths that can be requested here. */
  readonly paths: readonly string[];
}

export function statusz(request: HttpRequest, status: ProcessStatus): WholeReply {
  const { startedAt, now, version, paths } = status;
  const seconds = Math.max(0, Math.floor((now - startedAt) / 1000));
  const binaryVersion = `nft-proxier ${version}`;
  const emulationVersion = KUBE_PROXY_VERSION.replace(/^v(\d+\.\d+).*$/, "$1");
  return negotiated(request, "Statusz", {
    text: () =>
      `${head("statusz")}\nStarted: ${unixDate(startedAt)}\nUp: ${uptime(seconds)}\n` +
      `Node version: ${process.version}\nBinary version: ${binaryVersion}\nEmulation version: ${emulationVersion}\n` +
      `Paths: ${paths.join(" ")}\n`,
    fields: () => ({
      startTime: new Date(startedAt).toISOString().replace(/\.\d+Z$/, "Z"),
      uptimeSeconds: seconds,
      binaryVersion,
      emulationVersion,
      paths,
    }),
  });
}

/** `text` has one line "name=value" per flag. */
export function flagz(request: HttpRequest, text: string): WholeReply {
  return negotiated(request, "Flagz", {
    text: () => head("flagz") + text,
    fields: () => ({
      flags: Object.fromEntries([...text.matchAll(/^([a-z][\w.-]*)=(.*)$/gm)].map(([, name, value]) => [name, value])),
    }),
  });
}

function head(page: string): string {
  return `\n${COMPONENT} ${page}\n${WARNING}\n`;
}

interface Page {
  text(): string;
  fields(): Readonly<Record<string, unknown>>;
}

/** The first requested form that is available; text without an Accept header. */
function negotiated({ accept }: HttpRequest, kind: string, page: Page): WholeReply {
  const form =
    accept.trim() === ""
      ? "text"
      : accept
          .split(",")
          .map((range) => formOf(range, kind))
          .find(Boolean);
  switch (form) {
    case "text":
      return textReply(200, page.text());
    case "json": {
      const type = { kind, apiVersion: `${GROUP}/${VERSION}`, metadata: { name: COMPONENT } };
      return jsonReply({ ...type, ...page.fields() });
    }
    case undefined:
      return textReply(
        406,
        `only text/plain and application/json;v=${VERSION};g=${GROUP};as=${kind} are served here\n`,
      );
  }
}

/** The form that one range of an Accept header requests. Returns undefined if there is no such form. */
function formOf(range: string, kind: string): "text" | "json" | undefined {
  const [type = "", ...parameters] = range.split(";").map((part) => part.trim());
  const given = new Map(parameters.map((part) => [part.split("=", 1)[0] ?? "", part.slice(part.indexOf("=") + 1)]));
  if (given.get("q") !== undefined && Number(given.get("q")) === 0) return undefined;
  if (["text/plain", "text/*", "*/*"].includes(type)) {
    return (given.get("charset") ?? "utf-8").toLowerCase() === "utf-8" ? "text" : undefined;
  }
  const exact = given.get("g") === GROUP && given.get("v") === VERSION && given.get("as") === kind;
  return type === "application/json" && exact ? "json" : undefined;
}

/** Go's time.UnixDate, in UTC: "Wed Oct 16 21:03:43 UTC 2024". */
function unixDate(ms: number): string {
  // "Wed, 16 Oct 2024 21:03:43 GMT"
  const [weekday = "", day = "", month, year, time] = new Date(ms).toUTCString().split(" ");
  return `${weekday.slice(0, 3)} ${month} ${String(Number(day)).padStart(2)} ${time} UTC ${year}`;
}

function uptime(seconds: number): string {
  const two = (count: number): string => String(count).padStart(2, "0");
  return `${Math.floor(seconds / 3600)} hr ${two(Math.floor(seconds / 60) % 60)} min ${two(seconds % 60)} sec`;
}
