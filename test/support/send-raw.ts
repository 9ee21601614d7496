import { createConnection, type NetConnectOpts } from "node:net";

/**
 * Sends bytes, ends its side, and returns the answer until the server closes. A server that has not read everything resets the connection,
 * which is no error: the answer may then be incomplete.
 */
export function sendRaw(to: NetConnectOpts, bytes: string | Uint8Array): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = "";
    let connected = false;
    const socket = createConnection(to, () => {
      connected = true;
      socket.end(bytes);
    });
    socket
      .on("data", (part: Buffer) => void (answer += part.toString("latin1")))
      .on("error", (error) => connected || reject(error))
      .on("close", () => resolve(answer));
  });
}
