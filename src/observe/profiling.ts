/**
 * What there is instead of Go's /debug/pprof: V8's own CPU profile, which browsers' developer tools and speedscope read.
 * It is taken from inside the process: no debugger port is opened.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { type HttpHandler, JSON_TYPE, textReply } from "./http-listener.js";

export const PROFILING_PREFIX = "/debug/pprof/";

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 120;

const HELP =
  `This is a Node.js program: Go's profiles do not exist here.\n` +
  `${PROFILING_PREFIX}profile?seconds=N takes a CPU profile of N seconds (1 to ${MAX_SECONDS}, by default ` +
  `${DEFAULT_SECONDS}) in the format .cpuprofile,\nwhich the developer tools of Chrome and speedscope.app open.\n`;

/** Answers what is below /debug/pprof/. One profile at a time: they would measure each other. */
export function profilingHandler(): HttpHandler {
  let running = false;
  return async ({ path, query, signal }) => {
    if (path !== `${PROFILING_PREFIX}profile`) return textReply(path === PROFILING_PREFIX ? 200 : 404, HELP);
    const text = query.get("seconds") ?? String(DEFAULT_SECONDS);
    const seconds = Number(text);
    if (!Number.isInteger(seconds) || seconds < 1 || seconds > MAX_SECONDS) {
      return textReply(
        400,
        `${JSON.stringify(text.slice(0, 20))} is not a number of seconds from 1 to ${MAX_SECONDS}\n`,
      );
    }
    if (running) return textReply(409, "another profile is being taken\n");
    running = true;
    try {
      const body = JSON.stringify(await cpuProfile(seconds * 1000, signal));
      const headers = { "Content-Disposition": 'attachment; filename="profile.cpuprofile"' };
      return { status: 200, type: JSON_TYPE, body, headers };
    } finally {
      running = false;
    }
  };
}

/** Ends early when `signal` says that nobody waits for it. */
async function cpuProfile(ms: number, signal: AbortSignal): Promise<unknown> {
  const { Session } = await import("node:inspector/promises");
  const session = new Session();
  session.connect();
  try {
    await session.post("Profiler.enable");
    await session.post("Profiler.start");
    await sleep(ms, undefined, { signal }).catch(() => undefined);
    return (await session.post("Profiler.stop")).profile;
  } finally {
    session.disconnect();
  }
}
