import { isFields } from "../../base/unknown.js";
import type { ApiConnection } from "./connection.js";

/** A server that has just answered lists answers this too, or has more important things to do, ms. */
const IDLE_MS = 10_000;

/** `gitVersion` of /version ("v1.36.0"), or undefined when the server does not say: nothing depends on it but a metric. */
export async function serverVersion(connection: ApiConnection, signal: AbortSignal): Promise<string | undefined> {
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of connection.stream({ method: "GET", path: "/version", signal, idleMs: IDLE_MS })) {
      chunks.push(chunk);
    }
    const answer: unknown = JSON.parse(Buffer.concat(chunks).toString());
    const version = isFields(answer) ? answer["gitVersion"] : undefined;
    return typeof version === "string" ? version : undefined;
  } catch {
    return undefined;
  }
}
