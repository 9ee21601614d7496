import type * as Http from "node:http";
import type * as Https from "node:https";
import type * as Tls from "node:tls";

/**
 * Node's HTTP and TLS modules, each loaded on first use.
 *
 * A static `import` of one reads all of its exports. One of these, `WebSocket`, loads fetch and HTTP/2, which nothing here
 * uses. They take 14 MB and half of the time in which Node's own modules load at a start. These modules also cannot be in
 * the image's startup snapshot (src/snapshot.ts): V8 cannot serialize the HTTP parser.
 */
export const network = {
  get http(): typeof Http {
    return process.getBuiltinModule("node:http");
  },
  get https(): typeof Https {
    return process.getBuiltinModule("node:https");
  },
  get tls(): typeof Tls {
    return process.getBuiltinModule("node:tls");
  },
};
