/**
 * Credentials from a program that the kubeconfig names (users[].user.exec), run as in client-go's plugin/pkg/client/auth/exec.
 * Only one program runs at a time, however many requests wait for it, and none runs longer than the time limit.
 */
import { durationText } from "../../base/duration-text.js";
import { type ChildProcess, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { redactText } from "../../base/redact.js";
import { type Fields, isFields, isNoEntry, reasonOf } from "../../base/unknown.js";
import type { ExecSettings } from "./kubeconfig.js";

/** Credentials issued by a plugin. */
export interface IssuedCredentials {
  /** "" if there is none. */
  readonly token: string;
  /** PEM. A certificate always comes with its key. */
  readonly certificate: { readonly cert: string; readonly key: string } | undefined;
  /** Unix ms; Infinity if valid until the server rejects them. */
  readonly expiresAt: number;
}

interface ExecPluginOptions {
  readonly settings: ExecSettings;
  /** Provides information about the cluster (`spec.cluster`) before each run. Undefined if the plugin gets none. */
  readonly clusterInfo: () => Promise<Fields | undefined>;
  /** A plugin that runs longer is killed, ms. Default: TIME_LIMIT_MS. */
  readonly timeLimitMs?: number;
}

/** Shorter than a request waits for an answer, so that the reason is reported. */
const TIME_LIMIT_MS = 25_000;
const MAX_STDOUT_BYTES = 1 << 20;
/** Maximum bytes of stderr to read; the rest is dropped. */
const MAX_STDERR_BYTES = 1 << 16;
/** Maximum characters of stderr and of installHint in a message. */
const MAX_SHOWN = 500;

export class ExecPlugin {
  #issued: IssuedCredentials | undefined;
  #running: Promise<IssuedCredentials> | undefined;
  #child: ChildProcess | undefined;
  #closed = false;

  constructor(private readonly options: ExecPluginOptions) {}

  /** Returns the same object until the credentials expire or are rejected. Rejects with the reason if there are none. */
  async next(): Promise<IssuedCredentials> {
    if (this.#issued !== undefined && this.#issued.expiresAt > Date.now()) return this.#issued;
    this.#running ??= this.#issue().finally(() => (this.#running = undefined));
    return this.#running;
  }

  /** The server rejected the credentials: the next request runs the plugin again. */
  refused(): void {
    this.#issued = undefined;
  }

  /** Kills the plugin if it runs. */
  close(): void {
    this.#closed = true;
    if (this.#child !== undefined) killGroup(this.#child);
  }

  async #issue(): Promise<IssuedCredentials> {
    const { settings, clusterInfo } = this.options;
    const cluster = await clusterInfo();
    const spec = { interactive: false, cluster };
    const output = await this.#run({ apiVersion: settings.apiVersion, kind: "ExecCredential", spec });
    this.#issued = readCredential(output, settings);
    return this.#issued;
  }

  async #run(info: object): Promise<string> {
    const { settings, timeLimitMs = TIME_LIMIT_MS } = this.options;
    const { command, args } = settings;
    if (this.#closed) throw new Error("the program is exiting");
    const env = { ...process.env, ...settings.env, KUBERNETES_EXEC_INFO: JSON.stringify(info) };
    // The plugin gets its own process group, so that its child processes are killed with it.
    const child = spawn(command, args, { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    // The process may end before anything calls `close`: after two signals, or if the end takes too long.
    const kill = (): void => killGroup(child);
    process.once("exit", kill);
    const stdout = collect(child.stdout, MAX_STDOUT_BYTES, kill);
    const stderr = collect(child.stderr, MAX_STDERR_BYTES);
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      kill();
    }, timeLimitMs);
    try {
      const end = await ended(child);
      if (timedOut)
        throw failure(settings, `did not end within ${durationText(timeLimitMs)} and was killed`, stderr.text());
      if (stdout.overflowed) throw failure(settings, "wrote more than 1 MiB and was killed", stderr.text());
      if (end !== "exit code 0") throw failure(settings, `failed with ${end}`, stderr.text());
      return stdout.text();
    } catch (error) {
      throw isSpawnFailure(error) ? notStarted(settings, error) : error;
    } finally {
      clearTimeout(timer);
      process.off("exit", kill);
      this.#child = undefined;
    }
  }
}

/**
 * Resolves with the way the process ended, after its stdout has ended too, or its group was killed. It does not wait for
 * stderr, because an orphaned child process may hold it open for any time.
 */
async function ended(child: ChildProcess): Promise<string> {
  const closed = new Promise((resolve) => child.stdout?.once("close", resolve));
  const how = await new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code, signal) => resolve(signal === null ? `exit code ${code}` : signal));
  });
  await closed;
  // Output written before the end arrives by the next turn of the event loop.
  await new Promise(setImmediate);
  child.stderr?.destroy();
  return how;
}

/** Also closes the output, because a process that left the group may still hold it open. */
function killGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  } catch {
    // The group has no processes left.
  }
  child.stdout?.destroy();
  child.stderr?.destroy();
}

interface Collected {
  readonly overflowed: boolean;
  text(): string;
}

/** Keeps the first `most` bytes, and discards the rest. */
function collect(stream: Readable, most: number, onOverflow: () => void = () => undefined): Collected {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream.on("error", () => undefined);
  stream.on("data", (chunk: Buffer) => {
    if (bytes < most) chunks.push(chunk.subarray(0, most - bytes));
    bytes += chunk.length;
    if (bytes > most) onOverflow();
  });
  return {
    get overflowed() {
      return bytes > most;
    },
    text: () => Buffer.concat(chunks).toString(),
  };
}

/** The error message never contains stdout, because the token is there. */
function readCredential(output: string, settings: ExecSettings): IssuedCredentials {
  const { apiVersion, status } = parse(output, settings);
  if (apiVersion !== undefined && apiVersion !== settings.apiVersion) {
    throw failure(settings, `did not answer in version ${settings.apiVersion}`);
  }
  if (!isFields(status)) throw failure(settings, "returned no status");
  const text = (name: string) => (typeof status[name] === "string" ? status[name] : "");
  const [token, cert, key] = [text("token"), text("clientCertificateData"), text("clientKeyData")];
  if ((cert === "") !== (key === "")) throw failure(settings, "returned a certificate or a key, not both");
  if (token === "" && cert === "") throw failure(settings, "returned neither a token nor a certificate");
  const expiration = text("expirationTimestamp");
  const expiresAt = expiration === "" ? Infinity : Date.parse(expiration);
  if (Number.isNaN(expiresAt)) throw failure(settings, "returned an invalid expirationTimestamp");
  return { token, certificate: cert === "" ? undefined : { cert, key }, expiresAt };
}

function parse(output: string, settings: ExecSettings): Fields {
  let credential: unknown;
  try {
    credential = JSON.parse(output);
  } catch {
    // The parser's message would quote the output.
    credential = undefined;
  }
  if (isFields(credential)) return credential;
  throw failure(settings, "did not write an ExecCredential in JSON to stdout");
}

function failure({ command }: ExecSettings, what: string, stderr = ""): Error {
  // Redact first, because the part that identifies a secret may be cut off.
  const said = oneLine(redactText(stderr));
  const shown = said.length > MAX_SHOWN ? `...${said.slice(-MAX_SHOWN)}` : said;
  return new Error(`the credentials plugin ${command} ${what}${shown === "" ? "" : `; its stderr: ${shown}`}`);
}

function notStarted({ command, installHint }: ExecSettings, error: unknown): Error {
  const why = isNoEntry(error) ? "is not found" : `cannot be started (${reasonOf(error)})`;
  const hint = oneLine(redactText(installHint)).slice(0, MAX_SHOWN);
  return new Error(`the credentials plugin ${command} ${why}${hint === "" ? "" : `; ${hint}`}`);
}

function isSpawnFailure(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim();
}
