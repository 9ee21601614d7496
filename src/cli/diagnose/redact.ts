/** Secrets do not leave the node: what looks like one goes, by the name of its field, and in any text by its form. */

/** Kubeconfig's and kube-proxy's fields among them: token, password, client-key-data, exec.env, … */
const SECRET_FIELD =
  /token$|password|passwd|secret|authorization|credential|(key|certificate|authority)-?data$|^env$|^args$/i;
const GONE = "(removed)";

const SECRET_TEXTS: readonly (readonly [RegExp, string])[] = [
  [/\b(Bearer|Basic)\s+[\w.~+/=-]+/gi, `$1 ${GONE}`],
  // JSON Web Tokens, as service accounts have them.
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]*/g, GONE],
  [/-----BEGIN [A-Z ]+-----[^-]*-----END [A-Z ]+-----/g, GONE],
  // User and password of a URL.
  [/(\w:\/\/)[^\s/@"]+@/g, `$1${GONE}@`],
  [/((?:token|password|passwd|secret)["']?\s*[=:]\s*["']?)[^\s"',}&]+/gi, `$1${GONE}`],
];

/** A copy without values of fields that hold secrets. */
export function withoutSecrets(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [name, SECRET_FIELD.test(name) ? GONE : withoutSecrets(field)]),
  );
}

export function redactText(text: string): string {
  return SECRET_TEXTS.reduce((so, [form, instead]) => so.replaceAll(form, instead), text);
}
