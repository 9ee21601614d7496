/** A log that cannot be written costs lines, not service: packets follow changes, and the daemon ends when it is told to. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { Cluster, programWords } from "./support/cluster.ts";
import { clusterIP, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { checkRow } from "./support/rows.ts";

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(async () => {
  await cluster.destroy();
});

const web = (endpoint: string): ServiceSpec => ({ name: "web", n: 1, endpoints: [endpoint] });

/** Serves `web` with stderr at `sink`, while its endpoint changes. `use` runs before the daemon is told to end. */
async function serve(sink: number, use: () => Promise<void> = async () => {}): Promise<void> {
  const args = await cluster.write(serviceObjects(cluster.lab, web("a")));
  const words = programWords(["run", ...args, "--log-level", "debug"]);
  const daemon = cluster.node.spawn(words, { stdio: ["ignore", "ignore", sink] });
  for (const endpoint of ["a", "b", "r1"]) {
    await cluster.write(serviceObjects(cluster.lab, web(endpoint)));
    const row = { rule: "", from: "c", to: clusterIP(web(endpoint)), expect: { pods: [endpoint], masq: false } };
    await eventually(async () => expect(await checkRow(cluster, row)).toEqual([]));
  }
  await use();
  const exited = once(daemon, "exit");
  daemon.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
}

test("a full disk", async () => {
  const full = openSync("/dev/full", "w");
  await serve(full);
  closeSync(full);
});

test("a pipe whose reader stalls: later lines arrive when it reads again", async () => {
  const fifo = join(await cluster.temporaryDirectory(), "stderr");
  execFileSync("mkfifo", [fifo]);
  const reader = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  for (let free = true; free;) {
    try {
      writeSync(reader, "x".repeat(4096));
    } catch {
      free = false;
    }
  }
  const writer = openSync(fifo, "w");
  let text = "";
  const read = (): void => {
    const bytes = Buffer.alloc(1 << 20);
    try {
      for (let count = 1; count > 0; text += bytes.subarray(0, count).toString()) count = readSync(reader, bytes);
    } catch {
      // Empty.
    }
  };
  await serve(writer, async () => {
    await eventually(() => {
      read();
      expect(text.match(/"msg":"synced"/g)?.length ?? 0).toBeGreaterThan(3);
      return Promise.resolve();
    });
  });
  closeSync(writer);
  read();
  closeSync(reader);
  expect(text.trimStart().replace(/^x+/, "").split("\n").at(-2)).toContain('"msg":');
});
