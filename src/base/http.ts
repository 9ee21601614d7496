/**
 * node:http, as `require` gives it. An `import` of it reads each of its exports once, and one of these, `WebSocket`, loads fetch
 * and HTTP/2: half of a start's time in Node's own modules and 14 MB that stay resident, of which nothing here uses any.
 */
export const http = process.getBuiltinModule("node:http");
