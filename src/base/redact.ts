/** Keeps secrets on the node: fields are recognized by their names, and secrets in any text by their form. */

const GONE = "(removed)";

/** Endings of names whose values are secrets: "AWS_SECRET_ACCESS_KEY", "x-api-key", "clientSecret", "client-key-data". */
const SECRET_NAME =
  "(?:token|passw(?:or)?d|passphrase|[-_]pass|[-_]pwd|secret|" +
  "(?:api|access|account|auth|client|encryption|master|private|secret|shared|signing|ssh)[-_.]?key)(?:[-_.]?data)?";

/** Includes fields of kubeconfig and kube-proxy: token, password, client-key-data, exec.env, … */
const SECRET_FIELD = new RegExp(
  `${SECRET_NAME}$|password|passwd|secret|authorization|credential|cookie|(certificate|authority)-?data$|^env$|^args$`,
  "i",
);

/**
 * A value in quotes, which are captured, in the quotes of JSON within JSON, or up to the end of a word. A comma within a
 * word belongs to it.
 */
const VALUE =
  String.raw`(?:(\\")(?:[^"\\]|\\\\.)*|(")(?:[^"\\]|\\.)*|(')[^']*|` +
  String.raw`(?:[^\s"'\\&},;]|\\(?!["rn])|[,;](?![\s"'}]|[\w.-]+["']?[=:]|$))+)`;

/** Does not match part of a longer name or of a path: `open /run/token: no such file` contains no secret. */
const BEGIN = String.raw`(?<![\w./-])`;

const SECRET_TEXTS: readonly (readonly [RegExp, string])[] = [
  // For these schemes the credentials are a list up to the end of the line; for others they are one word.
  [/\b(authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?(?:Digest|OAuth|AWS4-[\w-]+)[ \t]+)[^\r\n]+/gi, `$1${GONE}`],
  [/\b(authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?[a-z][\w-]*[ \t]+)[^\s"'\\]+/gi, `$1${GONE}`],
  [/\b(authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?)[^\s"'\\]+(?=["'\\]|\s*$)/gim, `$1${GONE}`],
  [/\b((?:set-)?cookie\\?["']?[ \t]*[:=][ \t]*)[^\r\n"'\\]+/gi, `$1${GONE}`],
  [/\b(Bearer\s+)[\w.~+/=-]+/gi, `$1${GONE}`],
  // JSON Web Tokens, used for example by service accounts.
  [/(?<![\w-])(?=[\w-]+\.[\w-]+\.)((?:[\w-]*?-)??)eyJ[\w-]+\.[\w-]+\.[\w-]*/g, `$1${GONE}`],
  // User and password of a URL. A password may contain slashes, and text before a slash that looks like a port is a port.
  [/(\w:\/\/)[^\s/@"']+@/g, `$1${GONE}@`],
  [/(\w:\/\/)[^\s/:@"'[]*:(?!\d{1,5}[/?#])[^\s"'@]{0,500}@/g, `$1${GONE}@`],
  [new RegExp(String.raw`((?<!-)--[\w-]*${SECRET_NAME}[ \t]+)(?!-)${VALUE}`, "gi"), `$1$2$3$4${GONE}`],
  [
    new RegExp(
      String.raw`${BEGIN}([\w.-]*${SECRET_NAME}\\?["']?[ \t]*(?:[:=]>?|:=)[ \t]*)(?!\(removed\))${VALUE}`,
      "gi",
    ),
    `$1$2$3$4${GONE}`,
  ],
];

/** A copy without the values of fields that hold secrets. */
export function withoutSecrets(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [name, SECRET_FIELD.test(name) ? GONE : withoutSecrets(field)]),
  );
}

/** A copy whose texts, at any depth, contain nothing that looks like a secret. */
export function redactTexts<T>(value: T): T;
export function redactTexts(value: unknown): unknown {
  if (typeof value === "string") return redactText(value);
  if (Array.isArray(value)) return value.map((one: unknown) => redactTexts(one));
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  // As in JSON: dates and URLs are texts.
  if ("toJSON" in value && typeof value.toJSON === "function") return redactTexts<unknown>(value.toJSON());
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, redactTexts<unknown>(field)]));
}

/** The text without anything that looks like a secret. */
export function redactText(text: string): string {
  const redacted = SECRET_TEXTS.reduce((so, [form, instead]) => so.replaceAll(form, instead), withoutPem(text));
  return redacted.replace(/\b((?:Basic|Negotiate|Token)\s+)([\w.~+/=:-]+)/gi, (all, scheme: string, word: string) =>
    isCredential(word) ? scheme + GONE : all,
  );
}

/** Whether the word looks like a credential, not like a word of a sentence ("token expired") or a path. */
function isCredential(word: string): boolean {
  return word.length >= 6 && !word.startsWith("/") && /\d|[a-z][A-Z]|[+=~]/.test(word);
}

const PEM_BEGIN = String.raw`-----BEGIN [^-\r\n]*-----`;
const PEM_END = String.raw`-----END [^-\r\n]*-----`;
const LINE_END = String.raw`(?:\r?\n|\\r|\\n)`;
/** The rest of a PEM block that has no end: its headers and pure base64 lines. */
const PEM_LINE = String.raw`(?:(?:Proc-Type|DEK-Info|Version|Comment):.*?(?=${LINE_END}|$)|[\w+/=]+(?=[ \t]*(?:${LINE_END}|["']|$)))`;
const MOST_PEM = 32_768;
const WHOLE_PEM = new RegExp(`${PEM_BEGIN}(?:(?!${PEM_BEGIN})[^]){0,${MOST_PEM}}?${PEM_END}`, "g");
const CUT_PEM = new RegExp(String.raw`${PEM_BEGIN}(?:(?:\s|\\[rn])*${PEM_LINE})*`, "gm");

/** Removes keys and certificates, whatever their label, encrypted or not. The text may end or begin in the middle of one. */
function withoutPem(text: string): string {
  const rest = text.replaceAll(WHOLE_PEM, GONE).replaceAll(CUT_PEM, GONE);
  const parts = rest.split(new RegExp(PEM_END));
  return parts.map((part, i) => (i < parts.length - 1 ? `${withoutBase64AtEnd(part)}${GONE}` : part)).join("");
}

/** Removes the base64 lines at the end of the text. */
function withoutBase64AtEnd(text: string): string {
  const lines = text.split(new RegExp(`(${LINE_END})`));
  while (lines.length > 0 && /^(?:[\w+/=]*|\r?\n|\\[rn])$/.test(lines.at(-1) ?? "")) lines.pop();
  return lines.join("");
}
