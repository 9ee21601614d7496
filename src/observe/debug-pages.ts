/**
 * Pages below /debug: flags and profiles. Instead of Go's pprof there are V8's own profiles, which browsers' developer tools
 * and speedscope read. They are taken inside the process, without a debugger port. There is no heap snapshot: it would contain
 * all strings, including the API server's token, and double the memory.
 */
import type { Session } from "node:inspector/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { levelOf, type Logger } from "../base/logger.js";
import { type HttpHandler, type HttpReply, jsonReply, textReply } from "./http-server.js";

const PREFIX = "/debug/pprof/";

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 120;

/** Takes a profile until `wait` resolves, and returns a JSON document. */
type Taker = (session: Session, wait: () => Promise<void>) => Promise<unknown>;

interface Profile {
  readonly take: Taker;
  /** File name extension: "cpuprofile". */
  readonly extension: string;
  readonly help: string;
}

const PROFILES: Readonly<Record<string, Profile>> = {
  profile: { take: cpuProfile, extension: "cpuprofile", help: "CPU profile of N seconds" },
  heap: {
    take: (session, wait) => heapProfile(session, wait, false),
    extension: "heapprofile",
    help: "sampled allocations of N seconds that are still in use",
  },
  allocs: {
    take: (session, wait) => heapProfile(session, wait, true),
    extension: "heapprofile",
    help: "all sampled allocations of N seconds",
  },
};

const NO_GOROUTINES = "Node.js has no goroutines; nodejs_active_resources at /metrics counts pending operations";
/** Go's profiles that do not exist here, and why. */
const MISSING: Readonly<Record<string, string>> = {
  goroutine: NO_GOROUTINES,
  threadcreate: "all JavaScript runs in one thread",
  block: NO_GOROUTINES,
  mutex: "all JavaScript runs in one thread, so there are no locks",
  trace: `V8 has no trace in Go's format; ${PREFIX}profile shows which functions ran, and when`,
  symbol: "the profiles contain the names of the functions",
};

const INDEX =
  `This is a Node.js program: profiles are V8's, not Go's. The developer tools of Chrome and speedscope.app open them.\n\n` +
  Object.entries(PROFILES)
    .map(([name, { help, extension }]) => `${PREFIX}${name}?seconds=N: ${help}; .${extension}\n`)
    .join("") +
  `${PREFIX}cmdline: the command line\n` +
  `N is ${DEFAULT_SECONDS} by default, ${MAX_SECONDS} at most. Only one profile runs at a time.\n\nNot available:\n` +
  Object.keys(MISSING).map(missing).join("");

function missing(name: string): string {
  return `${name}: ${MISSING[name]}\n`;
}

/** By path. */
export function debugRoutes(log: Logger): ReadonlyMap<string, HttpHandler> {
  return new Map([...profilingRoutes(), ...flagRoutes(log)]);
}

/** Routes by path. Only one profile runs at a time, because several would measure each other. */
function profilingRoutes(): ReadonlyMap<string, HttpHandler> {
  const index: HttpHandler = () => textReply(200, INDEX);
  const routes = new Map<string, HttpHandler>([
    [PREFIX, index],
    [PREFIX.slice(0, -1), index],
    [`${PREFIX}cmdline`, () => textReply(200, process.argv.join("\0"))],
  ]);
  for (const name of Object.keys(MISSING)) routes.set(PREFIX + name, () => textReply(501, missing(name)));
  let running = false;
  for (const [name, profile] of Object.entries(PROFILES)) {
    routes.set(PREFIX + name, async ({ query, signal }) => {
      const seconds = secondsOf(query);
      if (typeof seconds !== "number") return seconds;
      if (running) return textReply(409, "another profile is running\n");
      running = true;
      try {
        const headers = { "Content-Disposition": `attachment; filename="${name}.${profile.extension}"` };
        return { ...jsonReply(await taken(profile.take, seconds * 1000, signal)), headers };
      } finally {
        running = false;
      }
    });
  }
  return routes;
}

/** Returns the number of seconds, or an error reply. */
function secondsOf(query: URLSearchParams): number | HttpReply {
  const text = query.get("seconds") ?? String(DEFAULT_SECONDS);
  const seconds = Number(text);
  if (Number.isInteger(seconds) && seconds >= 1 && seconds <= MAX_SECONDS) return seconds;
  return textReply(400, `${JSON.stringify(text.slice(0, 20))} is not a number of seconds from 1 to ${MAX_SECONDS}\n`);
}

/** Ends early if `signal` reports that the client is gone. */
async function taken(take: Taker, ms: number, signal: AbortSignal): Promise<unknown> {
  const { Session } = await import("node:inspector/promises");
  const session = new Session();
  session.connect();
  try {
    return await take(session, () => sleep(ms, undefined, { signal }).catch(() => undefined));
  } finally {
    session.disconnect();
  }
}

async function cpuProfile(session: Session, wait: () => Promise<void>): Promise<unknown> {
  await session.post("Profiler.enable");
  await session.post("Profiler.start");
  await wait();
  return (await session.post("Profiler.stop")).profile;
}

/** @param all include objects that have been collected meanwhile. */
async function heapProfile(session: Session, wait: () => Promise<void>, all: boolean): Promise<unknown> {
  await session.post("HeapProfiler.startSampling", {
    includeObjectsCollectedByMajorGC: all,
    includeObjectsCollectedByMinorGC: all,
  });
  await wait();
  // Collects garbage first; uncollected garbage would look as if it were in use.
  return (await session.post("HeapProfiler.stopSampling")).profile;
}

const MAX_VERBOSITY = 2 ** 31 - 1;

const flagsIndex: HttpHandler = () =>
  textReply(200, "flags that can be set:\n/debug/flags/v: curl -X PUT -d 4 sets the log's verbosity, as -v\n");

/**
 * Routes for /debug/flags, by path: flags that can be set while the program runs (k8s.io/apiserver/pkg/server/routes/flags.go).
 */
function flagRoutes(log: Logger): ReadonlyMap<string, HttpHandler> {
  return new Map([
    ["/debug/flags", flagsIndex],
    ["/debug/flags/", flagsIndex],
    [
      "/debug/flags/v",
      async ({ method, body }) =>
        method === "PUT" ? setVerbosity(log, (await body) ?? "") : textReply(406, "unsupported http method\n"),
    ],
  ]);
}

/** Answers in kube-proxy's words. */
function setVerbosity(log: Logger, body: string): HttpReply {
  const text = body.trim();
  const verbosity = Number(text);
  if (!/^[+-]?\d+$/.test(text) || Math.abs(verbosity) > MAX_VERBOSITY) {
    const shown = JSON.stringify(text.slice(0, 20));
    return textReply(400, `failed set klog.logging.verbosity ${shown}: it is not an integer\n`);
  }
  log.level = levelOf(verbosity);
  log.info({ verbosity, logLevel: log.level }, "log verbosity changed");
  return textReply(200, `successfully set klog.logging.verbosity to ${text}\n`);
}
