/**
 * On the real kernel: changes by other programs in and near a directory, and the resulting events on the event loop.
 */
import { execFile, spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { mkdir, rename, rm, symlink, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { DirectoryWatch, type InotifyEvent, type OpenInotify } from "../../../src/base/directory-watch.js";
import { openInotify } from "../../../src/netlink/inotify.js";
import { eventually } from "../../lab/eventually.ts";
import { temporaryDirectory } from "../../support/temporary-directory.ts";

const run = promisify(execFile);

/** Longer than an event takes, where nothing can follow it. */
const QUIET_MS = 150;
/** IN_MODIFY and IN_Q_OVERFLOW. */
const [MODIFY, OVERFLOW] = [0x2, 0x4000];

let root: string;
let directory: string;
let watch: DirectoryWatch | undefined;
let told: (string | undefined)[];
let notes: string[];
/** The kernel's events, a batch for each wake-up of the event loop. */
let batches: (readonly InotifyEvent[])[];

const recorded: OpenInotify = (onEvents) =>
  openInotify((events) => {
    batches.push(events);
    onEvents(events);
  });

beforeEach(async () => {
  root = temporaryDirectory();
  directory = join(root, "watched");
  await mkdir(directory);
  [told, notes, batches] = [[], [], []];
});
afterEach(() => {
  watch?.close();
  watch = undefined;
});

function open(inotify = recorded): DirectoryWatch {
  watch = new DirectoryWatch({
    directory,
    inotify,
    changed: (file) => told.push(file),
    note: (note) => notes.push(note),
    relevant: (file) => file === "config",
  });
  watch.open();
  return watch;
}

const put = (name: string, text = "x"): void => writeFileSync(join(directory, name), text);
const tells = (what: unknown): Promise<void> => eventually(() => expect(told).toContainEqual(what));

let markers = 0;
/**
 * Waits until all events so far have been processed: the kernel reports them in order, and another file's comes last. After a second that
 * file is created again, because a new directory may not have been watched the first time.
 */
async function processed(): Promise<void> {
  const marker = `marker-${++markers}`;
  let looks = 0;
  await eventually(() => {
    if (looks++ % 50 === 0) {
      rmSync(join(root, marker), { force: true });
      writeFileSync(join(root, marker), "x");
    }
    expect(batches.flat().map(({ name }) => name)).toContain(marker);
  });
}

/** Does `work`, and expects reports because of it. Returns them. */
async function tellsAfter(work: () => Promise<unknown> | void): Promise<(string | undefined)[]> {
  // Without its parent, nothing is watched.
  if (existsSync(root)) await processed();
  told.length = 0;
  await work();
  await eventually(() => expect(told).not.toEqual([]));
  return told;
}

/** Number of events that the event loop has processed. */
const loopEvents = (): number => performance.nodeTiming.uvMetricsInfo.events;

/** Another process writes to a file repeatedly. Returns how often this process's event loop was woken meanwhile. */
async function wakeUps(script: string): Promise<number> {
  await processed();
  const before = loopEvents();
  await run(process.execPath, ["--input-type=module", "-e", script], { cwd: directory });
  return loopEvents() - before;
}

describe("a busy file next to the watched one", () => {
  test("100,000 writes to a log that stays open cause no event", async () => {
    open();
    put("config");
    const script = `
      import { openSync, writeSync } from "node:fs";
      const [beside, above] = [openSync("log", "a"), openSync("../log", "a")];
      for (let i = 0; i < 50_000; i++) [beside, above].map((file) => writeSync(file, "a line of a log\\n"));`;
    await run(process.execPath, ["--input-type=module", "-e", script], { cwd: directory });
    await processed();
    // It creates two files, and the test creates "config" and the marker.
    expect(batches.flat().length).toBeLessThan(20);
    // The kernel merges writes that nobody has read yet.
    expect(batches.flat().filter(({ mask }) => (mask & MODIFY) !== 0)).toEqual([]);
    expect(told).toEqual(expect.arrayContaining(["config"]));
    expect(told.every((file) => file === "config")).toBe(true);
  });

  test("100,000 openings, writes and closings cause a few wake-ups a second, and changes are reported meanwhile", async () => {
    open();
    const start = performance.now();
    const writing = wakeUps(`
      import { appendFileSync } from "node:fs";
      for (let i = 0; i < 100_000; i++) appendFileSync("log", "a line of a log\\n");`);
    await sleep(4 * QUIET_MS);
    put("config");
    // The log's events fill the queue: after lost events, everything is checked.
    await eventually(() => expect(told).not.toEqual([]));
    const count = await writing;
    const seconds = (performance.now() - start) / 1000;
    // Far from one for each opening. Includes the wake-ups of the test's own process, which depend on the load.
    expect(count).toBeLessThan(10_000);
    expect(batches.length).toBeLessThan(20 + 25 * seconds);
    for (const events of batches) expect(events.length).toBeLessThanOrEqual(1024);
  });
});

describe("reported changes", () => {
  test("a file is written in place, and closed", async () => {
    put("config");
    open();
    const file = openSync(join(directory, "config"), "w");
    writeSync(file, "half");
    await processed();
    expect(told).toEqual([]);
    closeSync(file);
    await tells("config");
  });

  test("an editor moves the file away, writes it again, or renames another one", async () => {
    put("config");
    open();
    const path = join(directory, "config");
    expect(await tellsAfter(() => rename(path, `${path}~`))).toContain("config");
    expect(await tellsAfter(() => put("config", "y"))).toContain("config");
    put(".config.swp", "z");
    expect(await tellsAfter(() => rename(join(directory, ".config.swp"), path))).toEqual(["config"]);
  });

  test("a file is deleted, and created again", async () => {
    put("config");
    open();
    expect(await tellsAfter(() => unlink(join(directory, "config")))).toEqual(["config"]);
    expect(await tellsAfter(() => put("config"))).toContain("config");
  });

  test("a ConfigMap's link ..data is swapped", async () => {
    for (const version of ["..v1", "..v2"]) await mkdir(join(directory, version));
    await symlink("..v1", join(directory, "..data"));
    open();
    expect(
      await tellsAfter(async () => {
        await symlink("..v2", join(directory, "..data_tmp"));
        await rename(join(directory, "..data_tmp"), join(directory, "..data"));
      }),
    ).toContain(undefined);
  });

  test("a file elsewhere that a link refers to changes; other files there are ignored", async () => {
    const elsewhere = join(root, "elsewhere");
    await mkdir(elsewhere);
    const opened = open();
    opened.follow(new Map([[elsewhere, new Set(["real"])]]));
    await processed();
    told.length = 0;
    writeFileSync(join(elsewhere, "other"), "x");
    await processed();
    expect(told).toEqual([]);
    expect(await tellsAfter(() => writeFileSync(join(elsewhere, "real"), "x"))).toContain(undefined);
    opened.follow(new Map());
    told.length = 0;
    writeFileSync(join(elsewhere, "real"), "y");
    await processed();
    expect(told).toEqual([]);
  });
});

describe("the directory itself", () => {
  test.each([
    ["is removed and created again", () => rm(directory, { recursive: true }), () => mkdir(directory)],
    [
      "is moved away, and another one takes its place",
      () => rename(directory, join(root, "old")),
      async () => {
        await mkdir(join(root, "next"));
        await rename(join(root, "next"), directory);
      },
    ],
    [
      "disappears together with its parent",
      () => rm(root, { recursive: true }),
      () => mkdir(directory, { recursive: true }),
    ],
  ])("%s: changes in the new one are reported", async (_, goes, comes) => {
    put("config");
    open();
    expect(await tellsAfter(goes)).toContain(undefined);
    expect(await tellsAfter(comes)).toContain(undefined);
    expect(await tellsAfter(() => put("config"))).toContain("config");
    expect(notes).toEqual([]);
  });

  test("is a link that is swapped: changes in the former directory are no longer reported", async () => {
    const [first, second] = [join(root, "first"), join(root, "second")];
    await Promise.all([mkdir(first), mkdir(second), rm(directory, { recursive: true })]);
    await symlink(first, directory);
    open();
    const swap = async (): Promise<void> => {
      await symlink(second, join(root, "next"));
      await rename(join(root, "next"), directory);
    };
    expect(await tellsAfter(swap)).toContain(undefined);
    expect(await tellsAfter(() => put("config"))).toEqual(expect.arrayContaining(["config"]));
    told.length = 0;
    writeFileSync(join(first, "config"), "x");
    await processed();
    expect(told).toEqual([]);
  });

  test("does not exist yet when the watch is opened", async () => {
    await rm(directory, { recursive: true });
    open();
    expect(await tellsAfter(() => mkdir(directory))).toContain(undefined);
    expect(await tellsAfter(() => put("config"))).toContain("config");
  });

  test("is the root of the file system, and so its own parent", async () => {
    directory = "/";
    open();
    const made = join("/", `${basename(dirname(root))}-${process.pid}`);
    writeFileSync(made, "x");
    await unlink(made);
    await eventually(() => expect(batches.flat().map(({ name }) => name)).toContain(basename(made)));
    expect({ told, notes }).toEqual({ told: [], notes: [] });
  });
});

test("an overflow of the kernel's queue checks everything, and later changes are reported", async () => {
  const limit = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
  open();
  // Nobody reads meanwhile. The script alternates between two files, because the kernel merges an event with an equal
  // previous one.
  const script = `
    import { writeFileSync } from "node:fs";
    for (let i = 0; i < ${Math.ceil(1.2 * limit)}; i++) writeFileSync("other-" + (i % 2), "");`;
  spawnSync(process.execPath, ["--input-type=module", "-e", script], { cwd: directory });
  await tells(undefined);
  expect(batches.flat().some(({ mask }) => (mask & OVERFLOW) !== 0)).toBe(true);
  expect(await tellsAfter(() => put("config"))).toContain("config");
});

test("a system without watches polls the directory, and a note says so", async () => {
  open(() => {
    throw new Error("inotify_init1: EMFILE (Too many open files)");
  });
  expect(notes).toEqual([
    `${directory} cannot be watched (inotify_init1: EMFILE (Too many open files)), so it is checked every 1s`,
  ]);
  await tells(undefined);
});

test("nothing is reported after close", async () => {
  open().close();
  put("config");
  await sleep(QUIET_MS);
  expect(told).toEqual([]);
});
