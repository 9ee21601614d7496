/** TCP ports for tests that give one up and come back to it, on addresses that they share with everything else of the machine. */
import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/** Below the ports that the kernel gives away by itself (net.ipv4.ip_local_port_range), lest it does so a moment later. */
const [FIRST, LAST] = [15_000, 32_767];
/** Each of vitest's workers has ports of its own. */
const SHARES = 4;
const SHARE = Math.floor((LAST - FIRST + 1) / SHARES);
const first = FIRST + (Number(process.env["VITEST_POOL_ID"] ?? "0") % SHARES) * SHARE;
let next = randomInt(SHARE);

/** A port that nobody has, and that no other test asks for. */
export async function freePort(host = "127.0.0.1"): Promise<number> {
  for (let tries = 0; tries < SHARE; tries++) {
    const port = first + (next++ % SHARE);
    if (await isFree(host, port)) return port;
  }
  throw new Error(`all ports from ${first} to ${first + SHARE - 1} of ${host} are in use`);
}

function isFree(host: string, port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(false);
      else reject(error);
    });
    server.listen({ port, host, ipv6Only: true }, () => void server.close(() => resolve(true)));
  });
}
