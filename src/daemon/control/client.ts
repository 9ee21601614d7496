/** Sends requests to the daemon's socket. */
import { durationText } from "../../base/duration-text.js";
import { isFields, isNoEntry, reasonOf } from "../../base/unknown.js";
import { UserError } from "../../base/user-error.js";
import { API_VERSION } from "../../observe/status-report.js";

/** Not an import, because Node would read every property of the module and load the modules that they need. */
const { connect } = process.getBuiltinModule("node:net");

const TIMEOUT_MS = 5_000;

const START = "start the daemon";

/** No daemon answers, or it has not written any rules yet. The message says why. */
export class DaemonAway extends UserError {
  override readonly name = "DaemonAway";

  /**
   * @param remedy what to do; the kernel can be read meanwhile. Undefined if the caller may not ask the daemon, or if it
   * answers with an error.
   */
  constructor(
    message: string,
    readonly remedy: string | undefined,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The daemon answered that the object does not exist. */
export class NotFound extends UserError {
  override readonly name = "NotFound";
}

/**
 * @param path below "/v1/", as unencoded words.
 * @returns the answer, as one of the types in observe/status-report.ts. Rejects with DaemonAway or NotFound.
 */
export async function ask(socketPath: string, ...path: readonly string[]): Promise<unknown> {
  let text = "";
  await exchange(socketPath, path, (chunk) => (text += chunk));
  try {
    return JSON.parse(text);
  } catch (error) {
    throw cutShort(socketPath, error);
  }
}

/**
 * Requests a list, and calls `onItems` with a few of its items at a time, so that they need not be in memory together.
 * @returns the answer without the items. Rejects as `ask` does, possibly after some items.
 */
export async function askForItems(
  socketPath: string,
  path: readonly string[],
  onItems: (items: readonly unknown[]) => void,
): Promise<object> {
  let head: object | undefined;
  let rest = "";
  // The format of jsonParts().
  await exchange(socketPath, path, (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (head === undefined) head = withoutItems(JSON.parse(`${line}]}`) as object);
      else onItems(JSON.parse(`[${line.startsWith(",") ? line.slice(1) : line}]`) as readonly unknown[]);
    }
  });
  if (head !== undefined && rest === "]}") return head;
  throw cutShort(socketPath);
}

/** Returns the answer if it has the version that this program reads. Throws DaemonAway otherwise. */
export function ofThisVersion<T>(answer: T, socketPath: string): T {
  const version: unknown = isFields(answer) ? answer["apiVersion"] : undefined;
  if (version === API_VERSION) return answer;
  const found = typeof version === "string" ? `apiVersion ${JSON.stringify(version)}` : "no apiVersion";
  const hint = "Use the same version of nft-proxier as the daemon";
  throw new DaemonAway(
    `${socketPath} answers with ${found}, but this command reads ${API_VERSION}. ${hint}`,
    undefined,
  );
}

function withoutItems(list: object): object {
  return Object.fromEntries(Object.entries(list).filter(([name]) => name !== "items"));
}

function cutShort(socketPath: string, cause?: unknown): DaemonAway {
  return new DaemonAway(`the answer of the daemon at ${socketPath} ended too early`, undefined, { cause });
}

const HEAD_END = "\r\n\r\n";

/**
 * Sends one HTTP/1.0 request, whose answer ends with the connection. It does not use node:http, which takes longer to load than everything
 * else in a command. Rejects with DaemonAway or NotFound if the status is not 200.
 */
function exchange(socketPath: string, path: readonly string[], onBody: (chunk: string) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let head: string | undefined;
    let pending = "";
    let status = 0;
    const socket = connect({ path: socketPath }).setEncoding("utf8");
    const failed = (error: unknown): void => {
      socket.destroy();
      reject(whyAway(socketPath, error));
    };
    const receive = (chunk: string): void => {
      if (head !== undefined && status === 200) return onBody(chunk);
      pending += chunk;
      const end = pending.indexOf(HEAD_END);
      if (head !== undefined || end < 0) return;
      head = pending.slice(0, end);
      status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1] ?? 0);
      pending = pending.slice(end + HEAD_END.length);
      if (status === 200) onBody(pending);
    };
    socket.setTimeout(TIMEOUT_MS, () => {
      socket.destroy();
      void hanging(socketPath).then(reject);
    });
    socket.on("error", failed);
    socket.on("data", (chunk: string) => {
      try {
        receive(chunk);
      } catch (error) {
        failed(error);
      }
    });
    socket.on("end", () => {
      if (status === 200) resolve();
      else if (status === 404) reject(new NotFound(path.join("/")));
      else if (status === 0) failed(new Error("it closed the connection"));
      else if (status === 503) reject(notReady(socketPath, pending));
      else {
        const body = pending.slice(0, 200);
        reject(new DaemonAway(`the daemon at ${socketPath} answered ${status}: ${body}`, undefined));
      }
    });
    socket.write(`GET /v1/${path.map(encodeURIComponent).join("/")} HTTP/1.0\r\n\r\n`);
  });
}

/** With the server's reason (NotReady). */
function notReady(socketPath: string, body: string): DaemonAway {
  const { error } = JSON.parse(body) as { readonly error: string };
  return new DaemonAway(`the daemon at ${socketPath} has no answer yet: ${error}.`, "wait, and read the daemon's log");
}

/** The connection was accepted, by the kernel, but there is no answer. Never rejects. */
async function hanging(socketPath: string): Promise<DaemonAway> {
  const { listenerBeside } = await import("../../node/socket-listeners.js");
  const pid = (await listenerBeside(socketPath))?.pid;
  const who = pid === undefined ? "" : ` (pid ${pid})`;
  const what = `the daemon at ${socketPath}${who} does not answer within ${durationText(TIMEOUT_MS)}: it runs, but hangs.`;
  const end = pid === undefined || pid === 1 ? "end its process" : `run \`kill -KILL ${pid}\``;
  return new DaemonAway(what, `restart the daemon: delete its pod, or ${end}`);
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

function whyAway(socketPath: string, cause: unknown): DaemonAway {
  const code = codeOf(cause);
  if (isNoEntry(cause) || code === "ECONNREFUSED") {
    const what = `no daemon answers at ${socketPath}. Does one run in this network namespace?`;
    return new DaemonAway(what, START, { cause });
  }
  if (code === "EACCES" || code === "EPERM") {
    return new DaemonAway(`${socketPath}: permission denied. Run the command as root`, undefined, { cause });
  }
  const what = `the daemon at ${socketPath} does not answer: ${reasonOf(cause)}.`;
  return new DaemonAway(what, "run the command again, and read the daemon's log", { cause });
}
