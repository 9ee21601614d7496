/** Failures in kube-apiserver's words: metav1.Status. */
import type { Json } from "./protobuf.ts";

export interface StatusFields {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  /** Token for the next page, in metadata. */
  readonly continue?: string;
}

const REASONS: Readonly<Record<number, string>> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "AlreadyExists",
  410: "Expired",
  422: "Invalid",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

const MESSAGES: Readonly<Record<number, string>> = {
  401: "Unauthorized",
  429: "storage is (re)initializing",
  500: "Internal error occurred: etcdserver: leader changed",
  503: "the server is currently unable to handle the request",
  504: "Timeout: request did not complete within the allotted duration",
};

/** The usual reason and message for a code. */
export function statusFor(code: number, message?: string): StatusFields {
  return { code, reason: REASONS[code] ?? "", message: message ?? MESSAGES[code] ?? `answered with ${code}` };
}

export function expiredContinue(inconsistent: string): StatusFields {
  return {
    code: 410,
    reason: "Expired",
    message:
      "The provided continue parameter is too old to display a consistent list result. You can start a new list without " +
      "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
      "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or " +
      "deleted between the time the first chunk was returned and now may show up in the list.",
    continue: inconsistent,
  };
}

export function expiredWatch(asked: number, oldest: number): StatusFields {
  return { code: 410, reason: "Expired", message: `too old resource version: ${asked} (${oldest})` };
}

export function statusObject(status: StatusFields): Json {
  const { code, reason, message, details } = status;
  return {
    kind: "Status",
    apiVersion: "v1",
    metadata: status.continue === undefined ? {} : { continue: status.continue },
    status: "Failure",
    message,
    ...(reason !== "" && { reason }),
    details,
    code,
  };
}
