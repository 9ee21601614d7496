/** Failures in words that say what to look at. */

const HINTS: Readonly<Record<string, string>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate is self-signed; check certificate-authority",
  SELF_SIGNED_CERT_IN_CHAIN: "its certificate is of an authority that is not trusted; check certificate-authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    "its certificate is of an authority that is not trusted; check certificate-authority",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    "its certificate is of an authority that is not trusted; check certificate-authority",
  CERT_SIGNATURE_FAILURE: "its certificate is not signed by the trusted authority; check certificate-authority",
  CERT_HAS_EXPIRED: "its certificate has expired; check it and the clocks",
  CERT_NOT_YET_VALID: "its certificate is not valid yet; check it and the clocks",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for other names; check server and tls-server-name",
  ECONNRESET: "the connection broke off",
};

/** One line for people: the system's or OpenSSL's words, and what they mean where that is not obvious. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof AggregateError && error.errors.length > 0) {
    // One error for each address that was tried.
    return [...new Set(error.errors.map(describeFailure))].join("; ");
  }
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  const message = error.message === "" ? code : error.message;
  const hint = HINTS[code];
  return hint === undefined ? message : `${hint} (${message})`;
}
