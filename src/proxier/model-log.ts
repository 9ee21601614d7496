import type { Problem, TakeOver } from "../model/service-port-view.js";
import { type Logger, serviceFields } from "../base/logger.js";

/** Of what passed from one service to another, this much is logged. */
const MAX_CLAIMS = 20;

/** For `ServiceModelOptions.onProblem`: names an object that cannot be served. */
export function problemLogger(log: Logger): (problem: Problem) => void {
  return ({ kind, object, field, reason }) => log.warn({ kind, object, field, reason }, "ignored");
}

/** For `ServiceModelOptions.onTakeOver`. */
export function takeOverLogger(log: Logger): (takeOver: TakeOver) => void {
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
