/** /debug/flags: flags that can be set while the program runs (k8s.io/apiserver/pkg/server/routes/flags.go). */
import { type HttpHandler, type HttpReply, textReply } from "./http-listener.js";
import { levelOf, type Logger } from "../base/logger.js";

const MAX_VERBOSITY = 2 ** 31 - 1;

const index: HttpHandler = () =>
  textReply(200, "flags that can be set:\n/debug/flags/v: curl -X PUT -d 4 sets the log's verbosity, as -v\n");

/** By path. */
export function debugFlagRoutes(log: Logger): ReadonlyMap<string, HttpHandler> {
  return new Map([
    ["/debug/flags", index],
    ["/debug/flags/", index],
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
    return textReply(400, `failed set klog.logging.verbosity ${shown}: it is no whole number\n`);
  }
  log.level = levelOf(verbosity);
  log.info({ verbosity, logLevel: log.level }, "log verbosity changed");
  return textReply(200, `successfully set klog.logging.verbosity to ${text}\n`);
}
