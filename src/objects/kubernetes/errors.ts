/** Errors of the communication with the API server. */
import { durationText } from "../../base/duration-text.js";
import { type Fields, isFields } from "../../base/unknown.js";
import { UserError } from "../../base/user-error.js";

/**
 * The connection cannot be tried, because its settings are unusable. The message contains the problem, its place, and the
 * remedy.
 */
export class ConnectionSettingsError extends UserError {
  override readonly name = "ConnectionSettingsError";
  readonly code = "ECONNECTIONSETTINGS";
}

/** No answer, or an interrupted one: the network, TLS, a process that is gone, or missing credentials. */
export class TransportError extends Error {
  override readonly name: string = "TransportError";
  readonly code = "ETRANSPORT";
}

/** The connection seems to be open, but nothing arrives on it. */
export class StalledError extends TransportError {
  override readonly name = "StalledError";

  constructor(ms: number) {
    super(`nothing arrived for ${durationText(ms)}`);
  }
}

/** The server answered with an error. */
export class StatusError extends Error {
  override readonly name = "StatusError";
  readonly code = "ESTATUS";
  /** HTTP status, or the code of the Status object in a watch. */
  readonly status: number;
  /** "Expired", "Forbidden", ...; "" if the body is not a Status. */
  readonly reason: string;
  /** Retry-After, ms from now; undefined if absent or 0, which would be no pause at all. */
  readonly retryAfterMs: number | undefined;

  constructor(status: number, reason: string, message: string, retryAfterMs?: number) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * The server denies access that we need, so retrying does not help. The message contains the problem, its place, and the
 * remedy.
 */
export class AccessDeniedError extends UserError {
  override readonly name = "AccessDeniedError";
  readonly code = "EACCESSDENIED";
}

/** The answer violates the protocol: it comes from a proxy in between, or the server is not an API server. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
  readonly code = "EPROTOCOL";
}

/** @param body the text that came with an HTTP status, or the object of an ERROR event. @param retryAfter the header. */
export function statusError(status: number, body: unknown, retryAfter?: string): StatusError {
  const fields = statusFields(body);
  const { message, reason, details } = fields ?? {};
  const text = typeof message === "string" && message !== "" ? message : plainText(body);
  const seconds = Number(retryAfter ?? retrySeconds(details));
  const retryAfterMs = Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined;
  return new StatusError(status, typeof reason === "string" ? reason : "", text || `HTTP ${status}`, retryAfterMs);
}

function statusFields(body: unknown): Fields | undefined {
  if (typeof body === "string") {
    try {
      return statusFields(JSON.parse(body));
    } catch {
      return undefined;
    }
  }
  return isFields(body) ? body : undefined;
}

function retrySeconds(details: unknown): unknown {
  return isFields(details) ? details["retryAfterSeconds"] : undefined;
}

/** The beginning of a body that is not a Status, on one line: "404 page not found". */
function plainText(body: unknown): string {
  if (typeof body !== "string") return "";
  const line = body.replaceAll(/\s+/g, " ").trim();
  return line.length > 200 ? `${line.slice(0, 197)}...` : line;
}

/** The server no longer knows the resourceVersion or continue token: a full list is needed. */
export function isExpired(error: unknown): boolean {
  return (
    error instanceof StatusError && (error.status === 410 || error.reason === "Expired" || error.reason === "Gone")
  );
}

/** Advice by error code of the system or OpenSSL. */
const HINTS: Readonly<Record<string, string>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate is self-signed; check certificate-authority",
  SELF_SIGNED_CERT_IN_CHAIN: "its certificate comes from an untrusted authority; check certificate-authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "its certificate comes from an untrusted authority; check certificate-authority",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "its certificate comes from an untrusted authority; check certificate-authority",
  CERT_SIGNATURE_FAILURE: "its certificate is not signed by the trusted authority; check certificate-authority",
  CERT_HAS_EXPIRED: "its certificate has expired; check it and the clocks",
  CERT_NOT_YET_VALID: "its certificate is not valid yet; check it and the clocks",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate does not match the name; check server and tls-server-name",
  ECONNRESET: "the connection was lost",
};

/** One line for people: the message of the system or OpenSSL, with an explanation if it is not obvious. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof AggregateError && error.errors.length > 0) {
    // One error per tried address.
    return [...new Set(error.errors.map(describeFailure))].join("; ");
  }
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  // Node adds advice about its own command line, which users of this program cannot follow.
  const message = error.message.replace(/; [^;]*--use-system-ca$/, "") || code;
  const hint = HINTS[code];
  return hint === undefined ? message : `${hint} (${message})`;
}
