/** How our servers answer any client, friendly or not. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import {
  type HttpHandler,
  ConnectionLimit,
  HttpServer,
  type HttpReply,
  ListenError,
  NOT_FOUND,
  parseListenAddress,
  textReply,
} from "../../../src/observe/http-server.js";
import { freePort } from "../../lab/ports.ts";
import { ask, occupy, send } from "./http.js";

let open: HttpServer[] = [];
let failures: unknown[] = [];

afterEach(async () => {
  await Promise.all(open.map((listener) => listener.close()));
  open = [];
  failures = [];
});

const onRequestFailed = (error: unknown): void => void failures.push(error);

async function serve(handler: HttpHandler, host = "127.0.0.1", port = 0): Promise<HttpServer> {
  const listener = new HttpServer({ address: { host, port }, handler, onRequestFailed });
  open.push(listener);
  await listener.listen();
  return listener;
}

async function limited(handler: HttpHandler, limit: ConnectionLimit): Promise<HttpServer> {
  const listener = new HttpServer({
    address: { host: "127.0.0.1", port: 0 },
    handler,
    onRequestFailed,
    connections: limit,
  });
  open.push(listener);
  await listener.listen();
  return listener;
}

const hello: HttpHandler = ({ path }) => (path === "/hello" ? textReply(200, "hello") : NOT_FOUND);

describe("requests", () => {
  test("a client that half-closes after its requests receives the answers, and a handler learns of it", async () => {
    const aborted: boolean[] = [];
    const { port } = await serve(async ({ path, signal }) => {
      // The end of the client's side arrives after the request.
      if (["/one", "/four"].includes(path) && !signal.aborted) await once(signal, "abort");
      aborted.push(signal.aborted);
      return textReply(200, path);
    });
    const ended = async (bytes: string): Promise<string> => {
      let received = "";
      const socket = connect({ port: port ?? 0, host: "127.0.0.1", allowHalfOpen: true });
      socket.end(bytes).on("data", (part) => void (received += String(part)));
      await once(socket, "end");
      return received;
    };
    expect(await ended("GET /one HTTP/1.0\r\n\r\n")).toMatch(/^HTTP\/1.1 200 [^]*\/one$/);
    expect(aborted).toEqual([true]);
    const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
    expect(await ended(request("/two") + request("/three"))).toMatch(/\/twoHTTP\/1.1 200 [^]*\/three$/);
    // A request with a truncated body is not a request.
    expect(await ended("POST /four HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")).not.toContain("200");
  });

  test("an unmet expectation is answered, and ends the connection", async () => {
    const { port } = await serve(hello);
    const request = "GET /hello HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n";
    expect(await send(port, request + request)).toMatch(/^HTTP\/1.1 417 .*\r\n[^]*Connection: close/);
  });

  test("an answer has its type and its length, and nothing about us", async () => {
    const { port } = await serve(hello);
    const { status, headers, body } = await ask(port, "/hello?x=1");
    expect({ status, body }).toEqual({ status: 200, body: "hello" });
    expect(headers).toMatchObject({
      "content-type": "text/plain; charset=utf-8",
      "content-length": "5",
      "x-content-type-options": "nosniff",
    });
    const known = ["connection", "content-length", "content-type", "date", "keep-alive", "x-content-type-options"];
    expect(Object.keys(headers).filter((name) => !known.includes(name))).toEqual([]);
  });

  test("HEAD has the same answer without a body", async () => {
    const { port } = await serve(hello);
    const { status, headers, body } = await ask(port, "/hello", { method: "HEAD" });
    expect({ status, body, length: headers["content-length"] }).toEqual({ status: 200, body: "", length: "5" });
  });

  test("another path is 404", async () => {
    const { port } = await serve(hello);
    expect(await ask(port, "/hello/")).toMatchObject({ status: 404, body: "404 page not found\n" });
    expect(await ask(port, "//hello")).toMatchObject({ status: 404 });
  });

  test.each(["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])(
    "%s is answered like GET, as in Go, because load balancers probe with more than GET",
    async (method) => {
      const { port } = await serve(({ path, method: seen }) => textReply(200, `${seen} ${path}`));
      const { status, body } = await ask(port, "/hello", { method });
      expect({ status, body }).toEqual({ status: 200, body: `${method} /hello` });
    },
  );

  test("OPTIONS * is about the server, not about a path, as in Go", async () => {
    const { port } = await serve(hello);
    const answer = await send(port, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    expect(answer.split("\r\n")[0]).toBe("HTTP/1.1 200 OK");
    expect(answer).toContain("Content-Length: 0\r\n");
  });

  test("an unread body does not prevent the next request of the connection", async () => {
    const { port } = await serve(hello);
    const post = `POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody`;
    const answer = await send(port, `${post}GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(answer.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
  });

  test("a handler that asks for the body receives it, and an endless one is not read to its end", async () => {
    const bodies: (string | undefined)[] = [];
    const { port } = await serve(async ({ body }) => {
      bodies.push(await body);
      return textReply(200, "read");
    });
    const head = "PUT /v HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    expect(await send(port, `${head}Content-Length: 2\r\n\r\n10`)).toContain("200 OK");
    const endless = `${head}Content-Length: 10000000\r\n\r\n${"x".repeat(100_000)}`;
    expect(await send(port, endless)).not.toContain("200 OK");
    expect(bodies).toEqual(["10", undefined]);
  });

  test("an absolute target, which proxies send, is accepted, and an invalid one is 400", async () => {
    const { port } = await serve(hello);
    const get = async (target: string) =>
      (await send(port, `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)).split("\r\n")[0];
    expect(await get("http://node:10256/hello?x")).toBe("HTTP/1.1 200 OK");
    expect(await get("hello")).toBe("HTTP/1.1 400 Bad Request");
  });

  test("input that is not HTTP, and an endless head, are rejected", async () => {
    const { port } = await serve(hello);
    expect(await send(port, "\x16\x03\x01\r\n\r\n")).toContain("400 Bad Request");
    expect(await send(port, `GET /hello HTTP/1.1\r\nX: ${"y".repeat(20_000)}\r\n\r\n`)).toContain("431");
  });

  test("a failing handler is 500 without the reason, which is reported", async () => {
    const { port } = await serve(() => Promise.reject(new Error("secret")));
    expect(await ask(port, "/")).toMatchObject({ status: 500, body: "internal error\n" });
    expect(failures).toEqual([new Error("secret")]);
  });

  test("the handler learns when no client waits any longer", async () => {
    const signals: AbortSignal[] = [];
    const { port } = await serve(async ({ signal }) => {
      signals.push(signal);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      return textReply(200, "late");
    });
    const socket = connect(port ?? 0, "127.0.0.1", () => socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    await expect.poll(() => signals.length).toBe(1);
    expect(signals[0]?.aborted).toBe(false);
    socket.destroy();
    await expect.poll(() => signals[0]?.aborted).toBe(true);
    expect(failures).toEqual([]);
  });
});

describe("more connections than are served at a time", () => {
  const MANY = 1_000;
  const HEALTHY = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
  let sockets: Socket[] = [];

  afterEach(() => {
    for (const socket of sockets) socket.destroy();
    sockets = [];
  });

  /** Opens a connection, sends `bytes` and leaves it open. */
  async function hold(port: number | undefined, bytes: string): Promise<Socket> {
    const socket = connect(port ?? 0, "127.0.0.1");
    sockets.push(socket);
    socket.on("error", () => undefined).resume();
    await new Promise((resolve) => void socket.once("connect", resolve));
    socket.write(bytes);
    return socket;
  }

  const openOnes = (): number => sockets.filter(({ closed }) => !closed).length;

  test.each([
    ["that send nothing", ""],
    ["that send half a request", "GET /hello HTTP/1.1\r\nX: "],
    ["that send half a body", "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"],
    ["that have been answered", HEALTHY],
  ])("%s do not delay others' answers", async (_, bytes) => {
    const { port } = await serve(hello);
    for (let n = 0; n < MANY; n += 100) {
      await Promise.all(Array.from({ length: 100 }, () => hold(port, bytes)));
      expect(await ask(port, "/hello")).toMatchObject({ status: 200, body: "hello" });
    }
    await expect.poll(openOnes).toBeLessThanOrEqual(256);
  });

  test("the connection that has been idle longest is closed first", async () => {
    const { port } = await serve(hello);
    const [first, second] = [await hold(port, ""), await hold(port, "")];
    for (let n = 2; n < 256; n++) await hold(port, "");
    // The answer makes the first connection the least idle one.
    const answered = new Promise((resolve) => void first.once("data", resolve));
    first.write(HEALTHY);
    await answered;
    expect(await ask(port, "/hello")).toMatchObject({ status: 200 });
    await expect.poll(() => second.closed).toBe(true);
    expect(openOnes()).toBe(255);
    expect(first.closed).toBe(false);
  });

  test("a request in progress outlives idle connections", async () => {
    let finish = (): void => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    const { port } = await serve(async ({ path }) => {
      if (path === "/slow") await finished;
      return textReply(200, path);
    });
    const slow = ask(port, "/slow");
    for (let n = 0; n < 300; n++) await hold(port, "");
    finish();
    expect(await slow).toMatchObject({ status: 200, body: "/slow" });
  });

  test("if no connection is idle, the oldest is closed", async () => {
    let underWay = 0;
    const handler: HttpHandler = ({ path }) => {
      if (path !== "/never") return textReply(200, path);
      underWay++;
      return new Promise<HttpReply>(() => undefined);
    };
    const { port } = await limited(handler, new ConnectionLimit(3));
    const never = "GET /never HTTP/1.1\r\nHost: x\r\n\r\n";
    const [first, second, third] = [await hold(port, never), await hold(port, never), await hold(port, never)];
    await expect.poll(() => underWay).toBe(3);
    expect(await ask(port, "/hello")).toMatchObject({ status: 200 });
    await expect.poll(() => first.closed).toBe(true);
    expect([second.closed, third.closed]).toEqual([false, false]);
  });

  test("servers share the limit: idle connections of one make room for another's", async () => {
    const limit = new ConnectionLimit(10);
    const [one, other] = [await limited(hello, limit), await limited(hello, limit)];
    for (let n = 0; n < 20; n++) await hold(one.port, "");
    expect(await ask(other.port, "/hello")).toMatchObject({ status: 200 });
    await expect.poll(openOnes).toBeLessThanOrEqual(10);
  });
});

describe("listening", () => {
  test("a port in use is reported with its possible owner and the code", async () => {
    const other = await occupy();
    const refused = serve(hello, "127.0.0.1", other.port).catch((error: unknown) => error);
    const error = await refused;
    expect(error).toBeInstanceOf(ListenError);
    expect(error).toMatchObject({
      code: "EADDRINUSE",
      message: `listening on 127.0.0.1:${other.port} failed: another program (or another server of nft-proxier) uses this port (EADDRINUSE)`,
    });
    await other.free();
  });

  test("an address that this node does not have is reported", async () => {
    const error: unknown = await serve(hello, "192.0.2.1").catch((reason: unknown) => reason);
    expect(error).toMatchObject({
      code: "EADDRNOTAVAIL",
      message: "listening on 192.0.2.1:0 failed: no interface of this node has this address (EADDRNOTAVAIL)",
    });
  });

  test("the same object is retried when the port is free", async () => {
    const other = await occupy();
    const listener = new HttpServer({
      address: { host: "127.0.0.1", port: other.port },
      handler: hello,
      onRequestFailed,
    });
    open.push(listener);
    await expect(listener.listen()).rejects.toThrow(ListenError);
    await other.free();
    await listener.listen();
    expect(await ask(other.port, "/hello")).toMatchObject({ status: 200 });
  });

  test("close frees the port at once and ends connections, idle or in the middle of a request", async () => {
    const listener = await serve(hello);
    const { port = 0 } = listener;
    const ended = async (bytes: string): Promise<Socket> => {
      const socket = connect(port, "127.0.0.1", () => socket.write(bytes));
      await new Promise((resolve) => void socket.once("connect", resolve));
      return socket;
    };
    const sockets = [await ended("GET /he"), await ended("")];
    const closed = Promise.all(sockets.map((socket) => new Promise((resolve) => void socket.once("close", resolve))));
    for (const socket of sockets) socket.on("error", () => undefined).resume();
    const closing = listener.close();
    const again = await occupy("127.0.0.1", port);
    await closing;
    await closed;
    await again.free();
  });
});

describe("addresses in the configuration", () => {
  test("IP:port is accepted, with brackets around IPv6", () => {
    expect(parseListenAddress("127.0.0.1:10249")).toMatchObject({ host: "127.0.0.1", port: 10249 });
    expect(parseListenAddress("[2001:db8::1]:80")).toMatchObject({ host: "2001:db8::1", port: 80 });
  });

  test.each(["0.0.0.0:10256", "[::]:10256"])("%s means all addresses of both families, as in Go", (text) => {
    expect(parseListenAddress(text)).toMatchObject({ host: "::", port: 10256 });
  });

  test.each(["", "10256", ":10256", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "[::1]", "::1"])(
    "%j is refused",
    (text) => {
      expect(() => parseListenAddress(text)).toThrow(TypeError);
    },
  );

  test("probes of 0.0.0.0 may arrive through IPv4 and IPv6", async () => {
    const port = await freePort();
    const listener = new HttpServer({
      address: parseListenAddress(`0.0.0.0:${port}`),
      handler: hello,
      onRequestFailed,
    });
    open.push(listener);
    await listener.listen();
    expect(await ask(port, "/hello")).toMatchObject({ status: 200 });
    const over6 = await ask(port, "/hello", { host: "::1" }).catch((error: NodeJS.ErrnoException) => error.code);
    // A machine without IPv6 on its loopback can test only half of it.
    expect([200, "EADDRNOTAVAIL", "EAFNOSUPPORT"]).toContain(typeof over6 === "object" ? over6.status : over6);
  });
});
