/**
 * Forwards connections between two places on the same machine: out of a network namespace, through a unix socket.
 *
 *   node deploy/demo/relay.mjs FROM TO
 *
 * Each place is a port of 127.0.0.1, or the path of a unix socket.
 */
import { createConnection, createServer } from "node:net";
import { pipeline } from "node:stream";

const place = (text) => (/^\d+$/.test(text) ? { host: "127.0.0.1", port: Number(text) } : { path: text });

const [from, to] = process.argv.slice(2);
if (to === undefined) throw new Error("usage: node deploy/demo/relay.mjs FROM TO, each a port of 127.0.0.1 or a path");
createServer((client) => {
  const server = createConnection(place(to));
  // Either end may close at any time.
  pipeline(client, server, client, () => undefined);
}).listen(place(from));
