/** NetlinkConntrack's handling of the addon's answers, with an addon whose answers the test sets. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NetlinkConntrack } from "../../../src/nft/conntrack/netlink-conntrack.js";
import { packNewEntry } from "../../../src/nft/conntrack/encode.js";
import { loadAddon } from "../../../src/nft/kernel/addon.js";
import type { NativePiece } from "../../../src/nft/kernel/conntrack-addon.js";
import { flow, refusal } from "../../support/conntrack-entries.ts";

interface ScriptedAddon {
  /** Answers to conntrackRead, in order. */
  pieces: (() => Promise<NativePiece>)[];
}

const directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-"));
const file = path.join(directory, "addon.cjs");
const before = process.env["NFT_PROXIER_ADDON"];
let scripted: ScriptedAddon;

beforeAll(() => {
  writeFileSync(
    file,
    `exports.conntrackOpen = async () => ({});
     exports.conntrackClose = () => undefined;
     exports.conntrackDump = () => ({});
     exports.conntrackRead = () => exports.pieces.shift()();`,
  );
  process.env["NFT_PROXIER_ADDON"] = file;
  scripted = loadAddon() as unknown as ScriptedAddon;
});
afterAll(() => {
  if (before === undefined) delete process.env["NFT_PROXIER_ADDON"];
  else process.env["NFT_PROXIER_ADDON"] = before;
  rmSync(directory, { recursive: true });
});

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function piece(ports: readonly number[], more: Partial<NativePiece> = {}): () => Promise<NativePiece> {
  const records = ports.map((clientPort) => packNewEntry("test", flow({ clientPort })));
  const bytes = Uint8Array.from(Buffer.concat(records));
  const counts = { seen: ports.length, matched: ports.length, answered: 0 };
  return () =>
    Promise.resolve({ blocks: [{ stride: 160, bytes }], done: false, interrupted: false, ...counts, ...more });
}

const failed = (): Promise<never> =>
  Promise.reject(
    Object.assign(new Error("dump: ENOBUFS"), { code: "unknown-outcome", action: "dump", errno: 105, faults: [] }),
  );

test("pieces that arrive out of order are complete, and the marks of all of them count", async () => {
  const table = await NetlinkConntrack.open();
  scripted.pieces = [
    piece([1, 2], { seen: 4, interrupted: true }),
    piece([5], { done: true, seen: 7 }),
    piece([3, 4], { seen: 6 }),
  ];
  const ports: number[] = [];
  const result = await table.dump({}, (chunk) => void ports.push(...chunk.map(({ original }) => original.sourcePort)));
  expect(ports).toEqual([1, 2, 5, 3, 4]);
  expect(result).toEqual({ entries: 5, seen: 7, interrupted: true });
  await table.close();
});

test("a dump that fails while the callback is busy rejects, and leaves no unhandled rejection", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", note);
  const table = await NetlinkConntrack.open();
  scripted.pieces = [piece([1]), failed, failed];
  const told: number[] = [];
  const error = await refusal(
    table.dump({}, async (chunk) => {
      told.push(chunk.length);
      for (let i = 0; i < 5; i++) await turn();
    }),
  );
  expect(error).toMatchObject({ code: "unknown-outcome", errno: "ENOBUFS", details: { action: "dump" } });
  expect(told).toEqual([1]);
  await turn();
  process.off("unhandledRejection", note);
  expect(unhandled).toEqual([]);
  await table.close();
});

test("a callback that fails ends the dump after the read in progress", async () => {
  const table = await NetlinkConntrack.open();
  let arrived = false;
  const late = async (): Promise<NativePiece> => {
    for (let i = 0; i < 5; i++) await turn();
    arrived = true;
    return piece([2], { done: true })();
  };
  scripted.pieces = [piece([1]), late, piece([3], { done: true })];
  const enough = new Error("enough");
  const dump = table.dump({}, () => {
    throw enough;
  });
  await expect(dump).rejects.toBe(enough);
  expect(arrived).toBe(true);
  await table.close();
});
