/**
 * A pod of the demo: an HTTP server that returns its name.
 *
 *   node pod.ts NAME PORT ADDRESS...
 *
 * Prints "ready" when it listens on all addresses. On SIGTERM it finishes its current requests and exits.
 */
import { createServer } from "node:http";

const [name = "", port = "", ...addresses] = process.argv.slice(2);
const servers = addresses.map((host) => {
  const server = createServer((_request, response) => {
    response.setHeader("Connection", "close");
    response.end(name);
  });
  return { server, listening: new Promise<void>((resolve) => server.listen(Number(port), host, resolve)) };
});

process.on("SIGTERM", () => {
  for (const { server } of servers) server.close();
});
await Promise.all(servers.map(({ listening }) => listening));
process.stdout.write("ready\n");
