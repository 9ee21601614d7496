import type { Problem, Transfer } from "../model/service-port-view.js";
import { type Logger, serviceFields } from "../base/logger.js";

/** Maximum number of transferred claims to log. */
const MAX_CLAIMS = 20;

/** Creates `ServiceModelOptions.onProblem`, which logs objects that cannot be served. */
export function problemLogger(log: Logger): (problem: Problem) => void {
  return ({ kind, object, field, reason }) => log.warn({ kind, object, field, reason }, "ignored");
}

/** Creates `ServiceModelOptions.onTransfer`. */
export function transferLogger(log: Logger): (transfer: Transfer) => void {
  return ({ service, from, reason, claims }) => {
    const fields = {
      ...serviceFields(service),
      from,
      reason,
      claims: claims.slice(0, MAX_CLAIMS),
      total: claims.length,
    };
    log.info(fields, "addresses taken over from another service");
  };
}
