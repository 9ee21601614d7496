/** Requests to the servers that show the bytes as sent. */
import { request } from "node:http";
import { connect, createServer } from "node:net";
import type { EventRecorder, EventSubject, EventText } from "../../../src/base/events.js";
import type { Logger } from "../../../src/base/logger.js";
import { freePort } from "../../lab/ports.ts";
import { keptIn, type LogLine } from "../../support/log.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

export interface Question {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly host?: string;
}

export async function ask(port: number | undefined, path: string, question: Question = {}): Promise<Answer> {
  const { method = "GET", headers = {}, body: sentBody = "", host = "127.0.0.1" } = question;
  return new Promise((resolve, reject) => {
    const sent = request({ host, port, path, method, headers, agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (part: string) => void (body += part));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }));
    });
    sent.on("error", reject).end(sentBody);
  });
}

/** Sends bytes unchanged, and returns the answer until the other side closes: with a reset, if it has not read all of them. */
export async function send(port: number | undefined, bytes: string): Promise<string> {
  return new Promise((resolve) => {
    let received = "";
    const socket = connect(port ?? 0, "127.0.0.1", () => socket.write(bytes));
    socket.setEncoding("utf8").on("data", (part: string) => void (received += part));
    socket.on("error", () => undefined).on("close", () => resolve(received));
  });
}

/** Starts another process's server on its own port. */
export async function occupy(
  host = "127.0.0.1",
  port?: number,
): Promise<{ readonly port: number; free(): Promise<void> }> {
  const own = port ?? (await freePort(host));
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen({ port: own, host, ipv6Only: true }, resolve);
  });
  return { port: own, free: async () => new Promise((resolve) => void server.close(() => resolve())) };
}

export interface Journal {
  readonly log: Logger;
  readonly lines: LogLine[];
  readonly events: EventRecorder;
  readonly recorded: { readonly subject: EventSubject; readonly event: EventText }[];
}

/** Records log lines and Events. */
export function journal(): Journal {
  const lines: Journal["lines"] = [];
  const recorded: Journal["recorded"] = [];
  const record = (subject: EventSubject, event: EventText) => void recorded.push({ subject, event });
  return { log: keptIn(lines), lines, events: { record }, recorded };
}
