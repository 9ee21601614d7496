// Files are written in one turn of the event loop: however slow the machine is, nothing here sees them half written.
import { writeFileSync } from "node:fs";
import { mkdir, rename, rm, symlink, unlink, utimes } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseConfig } from "../../../src/config/load.js";
import { watchConfig } from "../../../src/config/watch-config.js";
import { eventually } from "../../lab/eventually.ts";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { HEAD } from "./parsing.ts";

const BEFORE = `${HEAD}oomScoreAdj: 1\n`;
const AFTER = `${HEAD}oomScoreAdj: 2\n`;
const WRONG = `${HEAD}oomScoreAdj: high\n`;

/** Longer than the program takes to notice a change and to read the file; an effect that has not come by then does not come. */
const QUIET_MS = 1500;

let directory: string;
let stop: () => void = () => undefined;
let changes: number[];
let invalid: string[];
let notes: string[];

beforeEach(() => {
  directory = temporaryDirectory();
  changes = [];
  invalid = [];
  notes = [];
});
afterEach(() => {
  stop();
});

function start(path: string): void {
  stop = watchConfig({
    path,
    text: BEFORE,
    document: parseConfig(BEFORE, path).document,
    parse: (text) => parseConfig(text, path),
    onChange: ({ config }) => changes.push(config.oomScoreAdj),
    onInvalid: (error) => invalid.push(error.message),
    onNote: (note) => notes.push(note),
  });
}

const changed = () => eventually(() => expect(changes).toEqual([2]));

/**
 * Creates a directory in the form of a ConfigMap that the kubelet mounts: the file is a link into ..data, which is a
 * link, too.
 */
async function mountConfigMap(): Promise<string> {
  await writeVersion("..v1", BEFORE);
  await symlink("..v1", join(directory, "..data"));
  await symlink("..data/config.conf", join(directory, "config.conf"));
  return join(directory, "config.conf");
}

async function writeVersion(name: string, text: string): Promise<void> {
  await mkdir(join(directory, name));
  writeFileSync(join(directory, name, "config.conf"), text);
}

async function swap(name: string, old: string): Promise<void> {
  await symlink(name, join(directory, "..data_tmp"));
  await rename(join(directory, "..data_tmp"), join(directory, "..data"));
  await rm(join(directory, old), { recursive: true });
}

test("a rewritten file is reported", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  writeFileSync(path, AFTER);
  await changed();
});

test("a change between reading the file and watching it is reported", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, AFTER);
  start(path);
  await changed();
});

test("an editor that writes another file and renames it is reported", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  writeFileSync(join(directory, ".config.conf.swp"), AFTER);
  await rename(join(directory, ".config.conf.swp"), path);
  await changed();
});

test("a file that is deleted and recreated is reported", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  await unlink(path);
  await eventually(() => expect(notes).toEqual([expect.stringContaining("unreadable")]));
  writeFileSync(path, BEFORE);
  await sleep(QUIET_MS);
  expect(changes).toEqual([]);
  writeFileSync(path, AFTER);
  await changed();
});

test("a ConfigMap's new version is reported", async () => {
  start(await mountConfigMap());
  await writeVersion("..v2", AFTER);
  await swap("..v2", "..v1");
  await changed();
});

test("a ConfigMap's new version with the same content is ignored", async () => {
  start(await mountConfigMap());
  await writeVersion("..v2", BEFORE);
  await swap("..v2", "..v1");
  await sleep(QUIET_MS);
  expect(changes).toEqual([]);
  await writeVersion("..v3", AFTER);
  await swap("..v3", "..v2");
  await changed();
});

test("a file that is a link to another directory is watched", async () => {
  const elsewhere = join(directory, "elsewhere");
  await mkdir(elsewhere);
  writeFileSync(join(elsewhere, "real.conf"), BEFORE);
  await symlink(join(elsewhere, "real.conf"), join(directory, "config.conf"));
  start(join(directory, "config.conf"));
  // The first read of the file follows the link.
  await sleep(QUIET_MS);
  writeFileSync(join(elsewhere, "real.conf"), AFTER);
  await changed();
});

test("a touch, the same bytes again, or another file's change is ignored", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  await utimes(path, 1, 1);
  writeFileSync(path, BEFORE);
  writeFileSync(join(directory, "other.conf"), AFTER);
  await sleep(QUIET_MS);
  expect({ changes, invalid, notes }).toEqual({ changes: [], invalid: [], notes: [] });
});

test("a change without effect is logged as a note", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  writeFileSync(path, `# a comment\n${BEFORE}healthzBindAddress: 0.0.0.0:10256\n`);
  await eventually(() => expect(notes).toEqual([expect.stringContaining("without effect")]));
  expect(changes).toEqual([]);
});

test("an invalid change is reported once, and ignored until it is valid", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  writeFileSync(path, WRONG);
  await eventually(() => expect(invalid).toEqual([`${path}: oomScoreAdj: must be a whole number`]));
  writeFileSync(path, WRONG);
  await sleep(QUIET_MS);
  expect(invalid).toHaveLength(1);
  writeFileSync(path, AFTER);
  await changed();
});

test("nothing is reported after stop", async () => {
  const path = join(directory, "config.conf");
  writeFileSync(path, BEFORE);
  start(path);
  stop();
  writeFileSync(path, AFTER);
  await sleep(QUIET_MS);
  expect(changes).toEqual([]);
});
