/** The daemon's socket: who may ask, what may be asked, and the effects of garbage. */
import { once } from "node:events";
import { spawn } from "node:child_process";
import { lstat, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DaemonAnswers } from "../../../../src/cli/answers/daemon-answers.js";
import { StatusBoard } from "../../../../src/daemon/answers/status-board.js";
import { newModel, service } from "../../model/objects.js";
import { ask, askForItems, DaemonAway, NotFound } from "../../../../src/daemon/control/client.js";
import { PiecewiseList } from "../../../../src/daemon/control/json-parts.js";
import { ControlServer, removeStaleSockets } from "../../../../src/daemon/control/control-server.js";
import { eventually } from "../../../lab/eventually.ts";
import { patience } from "../../../lab/patience.ts";
import { keptIn } from "../../../support/log.ts";
import { atLength } from "../../../lab/length.ts";
import { Dice } from "../../../support/dice.ts";
import { FUZZ_SEED } from "../../../support/fuzz-seed.ts";
import { sendRaw } from "../../../support/send-raw.ts";
import { temporaryDirectory } from "../../../support/temporary-directory.ts";

let directory: string;
let path: string;
let lines: Record<string, unknown>[];
const servers: ControlServer[] = [];
/** Level info and above. */
const said = () => lines.filter(({ level }) => level !== "debug");
beforeEach(() => {
  directory = temporaryDirectory();
  path = join(directory, "run", "one.sock");
  lines = [];
});
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

const routes = (words: readonly string[]): Promise<unknown> | undefined => {
  if (words[0] === "fails") return Promise.reject(new Error("no such luck"));
  return words[0] === "echo" ? Promise.resolve({ words }) : undefined;
};

/** Leaves a socket as a killed daemon does. */
function leaveSocket(at: string): Promise<unknown> {
  const script = `require("node:net").createServer().listen(process.argv[1], () => process.kill(process.pid, "SIGKILL"))`;
  return once(spawn(process.execPath, ["-e", script, at]), "exit");
}

async function serve(
  route: (words: readonly string[]) => Promise<unknown> | undefined = routes,
  checkMs?: number,
): Promise<ControlServer> {
  const server = new ControlServer(path, route, keptIn(lines), checkMs);
  servers.push(server);
  await server.start();
  return server;
}

async function* piecesOf(items: readonly unknown[]): AsyncGenerator<readonly unknown[]> {
  for (let from = 0; from < items.length; from += 256) yield await Promise.resolve(items.slice(from, from + 256));
}

const raw = (bytes: string | Uint8Array): Promise<string> => sendRaw({ path }, bytes);

test("only its user may open it", async () => {
  await serve();
  const { mode } = await stat(path);
  expect((mode & 0o777).toString(8)).toBe("600");
});

test("words of a path arrive as they were sent", async () => {
  await serve();
  expect(await ask(path, "echo", "a/b", "ä %")).toEqual({ words: ["echo", "a/b", "ä %"] });
});

test("a list arrives a few items at a time, complete and in order", async () => {
  const items = Array.from({ length: 2_000 }, (_, i) => ({ name: `s${i}`, text: "line\nbreak ".repeat(20) }));
  await serve((words) =>
    words[0] === "list" ? Promise.resolve(new PiecewiseList({ kind: "List" }, piecesOf(items))) : undefined,
  );
  const pieces: (readonly unknown[])[] = [];
  expect(await askForItems(path, ["list"], (some) => pieces.push(some))).toEqual({ kind: "List" });
  expect(pieces.length).toBeGreaterThan(5);
  expect(pieces.flat()).toEqual(items);
  expect(await ask(path, "list")).toEqual({ kind: "List", items });
  await expect(askForItems(path, ["nothing"], () => undefined)).rejects.toThrow(NotFound);
});

test("an answer that ends too early is an error, not a short list", async () => {
  const broken = async function* () {
    yield [1, 2];
    await Promise.resolve();
    throw new Error("no such luck");
  };
  await serve(() => Promise.resolve(new PiecewiseList({}, broken())));
  await expect(askForItems(path, ["list"], () => undefined)).rejects.toThrow(DaemonAway);
  await expect(ask(path, "list")).rejects.toThrow(DaemonAway);
  expect(said().map(({ msg }) => msg)).toEqual(["control request failed", "control request failed"]);
});

test("a missing object is distinguished from an unreachable daemon", async () => {
  await serve();
  await expect(ask(path, "nothing")).rejects.toThrow(NotFound);
  await expect(ask(join(directory, "none.sock"), "echo")).rejects.toThrow(/no daemon answers at .*none\.sock/);
});

test("a daemon that closes the connection does not answer, in a whole sentence", async () => {
  const closing = createServer((socket) => socket.end());
  await mkdir(join(directory, "run"));
  await once(closing.listen(path), "listening");
  await expect(ask(path, "echo")).rejects.toThrow(/^the daemon at .* does not answer: it closed the connection\.$/);
  closing.close();
});

test("a failing answer is an error of that request, and logged", async () => {
  await serve();
  await expect(ask(path, "fails")).rejects.toThrow(DaemonAway);
  await expect(ask(path, "fails")).rejects.toThrow(/answered 500.*no such luck/);
  expect(said().map(({ msg }) => msg)).toEqual(["control request failed", "control request failed"]);
  expect(await ask(path, "echo")).toEqual({ words: ["echo"] });
});

test("a long list arrives complete, and is never converted to text in one piece", async () => {
  const items = Array.from({ length: 5001 }, (_, i) => ({ i, text: `ä"${i}` }));
  await serve(() => Promise.resolve(new PiecewiseList({ kind: "List", more: 1 }, piecesOf(items))));
  const stringify = vi.spyOn(JSON, "stringify");
  const list = await ask(path, "list");
  const longest = Math.max(...stringify.mock.results.map(({ value }) => String(value).length));
  stringify.mockRestore();
  expect(list).toEqual({ kind: "List", more: 1, items });
  expect(longest).toBeLessThan(20_000);
});

test("only GET is answered", async () => {
  await serve();
  for (const method of ["POST", "PUT", "DELETE", "PATCH"]) {
    expect(await raw(`${method} /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 405 /,
    );
  }
  expect(await raw("GET /v2/echo HTTP/1.1\r\nHost: x\r\n\r\n")).toMatch(/^HTTP\/1\.1 404 /);
  expect(await raw("GET /v1/%ff HTTP/1.1\r\nHost: x\r\n\r\n")).toMatch(/^HTTP\/1\.1 404 /);
});

test("the socket of a killed daemon is replaced, and a running daemon keeps its own", async () => {
  const first = await serve();
  await serve(() => Promise.resolve("the second"), 600_000);
  expect(await ask(path, "echo")).toEqual({ words: ["echo"] });
  expect(said()).toMatchObject([{ reason: expect.stringContaining("another daemon") as string }]);
  await first.close();
  expect(await readdir(join(directory, "run"))).toEqual([]);
  await leaveSocket(path);
  await serve(() => Promise.resolve("the third"));
  expect(await ask(path, "echo")).toBe("the third");
});

test.each<[string, (at: string) => Promise<unknown>]>([
  ["a file", (at) => writeFile(at, "precious")],
  ["an empty file", (at) => writeFile(at, "")],
  ["a link", (at) => symlink("/nowhere", at)],
  ["a directory", (at) => mkdir(at)],
])("%s at the path stays, and the log says what to do", async (_, put) => {
  await mkdir(join(directory, "run"));
  await put(path);
  const before = await lstat(path);
  const server = await serve();
  expect(said()).toMatchObject([{ level: "error", reason: expect.stringContaining("not a socket") as string }]);
  await server.close();
  expect((await lstat(path)).ino).toBe(before.ino);
});

test("a socket whose file, or directory, was removed is recreated", async () => {
  await serve(routes, 20);
  for (const gone of [path, join(directory, "run")]) {
    await rm(gone, { recursive: true });
    await eventually(async () => expect(await ask(path, "echo")).toEqual({ words: ["echo"] }));
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  }
  expect(said().map(({ msg }) => msg)).toEqual(Array(2).fill("control socket was removed; created again"));
});

test("a file in the place of the socket stays when the daemon ends", async () => {
  const server = await serve();
  await rm(path);
  await writeFile(path, "another program's");
  await server.close();
  expect(await readFile(path, "utf8")).toBe("another program's");
});

test("an answer of another version is an error that says what to do", async () => {
  const list = new PiecewiseList({}, piecesOf([]));
  await serve((words) => Promise.resolve(words[0] === "status" ? { apiVersion: "nft-proxier.dev/v9" } : list));
  await expect(new DaemonAnswers(path).status()).rejects.toThrow(
    /apiVersion "nft-proxier.dev\/v9".*Use the same version of nft-proxier/,
  );
  await expect(new DaemonAnswers(path).services()).rejects.toThrow(/no apiVersion/);
});

test("sockets of killed daemons are removed, and nothing else", async () => {
  const sockets = join(directory, "run");
  await mkdir(sockets);
  for (const name of ["1.sock", "2.sock", "other.sock"]) await leaveSocket(join(sockets, name));
  await writeFile(join(sockets, "3.sock"), "a file");
  const living = createServer().listen(join(sockets, "4.sock"));
  await once(living, "listening");
  await serve();
  // Recent ones may belong to daemons that are starting.
  expect((await readdir(sockets)).sort()).toEqual(["1.sock", "2.sock", "3.sock", "4.sock", "one.sock", "other.sock"]);
  await removeStaleSockets(sockets, keptIn(lines), 0);
  expect((await readdir(sockets)).sort()).toEqual(["3.sock", "4.sock", "one.sock", "other.sock"]);
  living.close();
});

test("a directory that cannot be created does not prevent the daemon's work", async () => {
  await writeFile(join(directory, "run"), "a file");
  await serve();
  expect(said()).toMatchObject([
    {
      msg: "no control socket, so `status` and `services` cannot reach the daemon",
      reason: expect.stringContaining("EEXIST") as string,
    },
  ]);
});

test("the socket is created when its directory can be created, or another daemon has ended", async () => {
  await writeFile(join(directory, "run"), "a file");
  const first = await serve(() => Promise.resolve("the first"), 20);
  await rm(join(directory, "run"));
  await eventually(async () => expect(await ask(path, "echo")).toBe("the first"));
  await serve(() => Promise.resolve("the second"), 20);
  await first.close();
  await eventually(async () => expect(await ask(path, "echo")).toBe("the second"));
});

const NOISE = atLength({ short: 500, usual: 2000, nightly: 100_000 });

test(
  `${NOISE} random requests neither stop nor block it, FUZZ_SEED=${FUZZ_SEED}`,
  { timeout: patience(180_000 + 5 * NOISE) },
  async () => {
    const { model } = newModel();
    for (let i = 0; i < 20; i++) model.upsertService(service(`s${i}`, { clusterIP: `10.0.0.${i + 1}` }));
    const health = { healthy: true, pendingMs: () => 0, nodeIneligible: undefined };
    const board = new StatusBoard({
      log: keptIn(lines),
      version: "1",
      nodeName: "here",
      families: ["ip"],
      model,
      health,
    });
    await serve((words) => (words[0] === "echo" ? routes(words) : board.route(words)));
    const whole = " HTTP/1.1\r\nHost: x\r\n";
    const heads = [
      "GET /v1/",
      "GET /v1/services/",
      `GET /v1/services${whole}`,
      "GET /v1/services/default/s1",
      `GET /v1/status${whole}X: `,
      "GET /v1/events?",
      "GET ",
      "POST /v1/x HTTP/1.1\r\n",
      "",
      "GET /v1/echo HTTP/1.1\r\nX: ",
    ];
    const dice = new Dice(FUZZ_SEED);
    for (let batch = 0; batch < NOISE / 10; batch++) {
      const all = Array.from({ length: 10 }, (_, i) => {
        const noise = dice.bytes((batch * 10 + i) % 300);
        return raw(
          Buffer.concat([Buffer.from(heads[i % heads.length]), noise, Buffer.from(i % 2 === 0 ? "\r\n\r\n" : "")]),
        );
      });
      for (const answer of await Promise.all(all)) expect(answer).toMatch(/^(HTTP\/1\.1 (200|400|404|405|431) |$)/);
    }
    expect(await ask(path, "echo", "still")).toEqual({ words: ["echo", "still"] });
  },
);
