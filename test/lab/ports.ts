/**
 * TCP ports for tests that release a port and bind it again, on addresses shared with everything else on the machine.
 */
import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/**
 * Below the kernel's ephemeral ports (net.ipv4.ip_local_port_range), so that the kernel does not assign it a moment later.
 */
const [FIRST, LAST] = [15_000, 32_767];
/** Each vitest worker has its own ports. */
const SHARES = 4;
const SHARE = Math.floor((LAST - FIRST + 1) / SHARES);
const first = FIRST + (Number(process.env["VITEST_POOL_ID"] ?? "0") % SHARES) * SHARE;
let next = randomInt(SHARE);

/** Returns a port that is free and that no other test requests. */
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
