/** Asks the daemon on its socket. */
import { letYoungGenerationGrow } from "../base/runtime.js";
import { isNoEntry, reasonOf } from "../base/unknown.js";

/** An import would have Node load what fetch() needs, a tenth of a second. */
const { request } = process.getBuiltinModule("node:http");

const TIMEOUT_MS = 5_000;

/** No daemon answers there; the message says why, and what to do. */
export class DaemonAway extends Error {
  override readonly name = "DaemonAway";
  /** Nothing answers there; otherwise it may not be asked, or answers with an error. */
  readonly absent: boolean;

  constructor(message: string, absent: boolean, options?: ErrorOptions) {
    super(message, options);
    this.absent = absent;
  }
}

/** The daemon answered that there is no such thing. */
export class NotFound extends Error {
  override readonly name = "NotFound";
}

/**
 * @param path below "/v1/", each word as it is.
 * @returns the answer, as one of the types of types.ts. Rejects with DaemonAway or NotFound.
 */
export async function ask(socketPath: string, ...path: readonly string[]): Promise<unknown> {
  letYoungGenerationGrow();
  const url = `/v1/${path.map(encodeURIComponent).join("/")}`;
  const { status, body } = await get(socketPath, url);
  if (status === 200) return JSON.parse(body);
  if (status === 404) throw new NotFound(path.join("/"));
  throw new DaemonAway(`the daemon at ${socketPath} answered ${status}: ${body.slice(0, 200)}`, false);
}

function get(socketPath: string, url: string): Promise<{ readonly status: number; readonly body: string }> {
  return new Promise((resolve, reject) => {
    const failed = (error: unknown): void => {
      reject(new DaemonAway(whyAway(socketPath, error), isAbsent(error), { cause: error }));
    };
    const asked = request({ socketPath, path: url, timeout: TIMEOUT_MS }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
      response.on("error", failed);
    });
    asked.on("timeout", () => asked.destroy(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)));
    asked.on("error", failed);
    asked.end();
  });
}

function isAbsent(error: unknown): boolean {
  return codeOf(error) !== "EACCES" && codeOf(error) !== "EPERM";
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

function whyAway(socketPath: string, error: unknown): string {
  if (isNoEntry(error) || codeOf(error) === "ECONNREFUSED") {
    return `no daemon answers at ${socketPath}: does one run in this network namespace?`;
  }
  if (!isAbsent(error)) return `${socketPath}: only root may ask the daemon`;
  return `the daemon at ${socketPath} does not answer: ${reasonOf(error)}`;
}
