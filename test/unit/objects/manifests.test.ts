import { mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { chmod, link, mkdir, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { ObjectDecoder } from "../../../src/objects/decode/object-decoder.js";
import {
  ManifestSource,
  type ManifestProblem,
  type ManifestSourceOptions,
} from "../../../src/objects/manifests/manifest-source.js";
import { openInotify } from "../../../src/netlink/inotify.js";
import type { KubeObject, ObjectSink } from "../../../src/objects/object-sink.js";
import { eventually, EVENTUALLY_MS } from "../../lab/eventually.ts";
import { temporaryDirectory } from "../../support/temporary-directory.ts";

/** Records its calls, a line for each, and the current objects. */
class Recorder implements ObjectSink {
  readonly calls: string[] = [];
  readonly objects = new Map<string, KubeObject>();
  #waiting: (() => void)[] = [];

  upsert(object: KubeObject): void {
    const key = `${object.kind} ${object.name}`;
    this.calls.push(`+ ${key}`);
    this.objects.set(key, object);
  }

  remove(...[kind, name]: Parameters<ObjectSink["remove"]>): void {
    this.calls.push(`- ${kind} ${name}`);
    this.objects.delete(`${kind} ${name}`);
  }

  synced(): void {
    this.calls.push("synced");
  }

  flush(): void {
    this.calls.push("flush");
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Returns the calls up to the next flush. */
  async next(): Promise<string[]> {
    if (!this.calls.includes("flush")) {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`no flush; so far: ${this.calls.join(", ")}`)), EVENTUALLY_MS);
        this.#waiting.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
    return this.calls.splice(0, this.calls.indexOf("flush") + 1);
  }
}

let directory: string;
let source: ManifestSource | undefined;
let sink: Recorder;
let problems: ManifestProblem[];
let notes: string[];

beforeEach(() => {
  directory = temporaryDirectory();
  sink = new Recorder();
  problems = [];
  notes = [];
});

afterEach(async () => {
  await source?.stop();
  source = undefined;
});

function make(options: Partial<ManifestSourceOptions> = {}): ManifestSource {
  source = new ManifestSource({
    directory,
    decoder: new ObjectDecoder({ nodeName: "here" }),
    onProblem: (problem) => problems.push(problem),
    onNote: (note) => notes.push(note),
    ...options,
  });
  return source;
}

/** Writes in one turn of the event loop: however slow the machine is, nothing here sees half-written files. */
function put(files: Readonly<Record<string, unknown>>): void {
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(directory, name), typeof content === "string" ? content : JSON.stringify(content));
  }
}

/** Starts watching with these files, and clears the calls of the first list. */
async function watching(files: Readonly<Record<string, unknown>>, options: Partial<ManifestSourceOptions> = {}) {
  put(files);
  await make({ watch: openInotify, ...options }).start(sink);
  sink.calls.length = 0;
}

function svc(name: string, clusterIP = "10.0.0.1") {
  return { apiVersion: "v1", kind: "Service", metadata: { name }, spec: { clusterIP, ports: [{ port: 80 }] } };
}

/** A List: the way to have several objects in a JSON file. */
function list(...items: unknown[]) {
  return { apiVersion: "v1", kind: "List", items };
}

function clusterIP(name: string): unknown {
  const object = sink.objects.get(`Service default/${name}`);
  return object?.kind === "Service" ? object.record?.ip?.clusterIP : undefined;
}

/** Long enough for the effect of an event that must have no effect. */
const QUIET_MS = 150;
const quiet = () => new Promise((resolve) => setTimeout(resolve, QUIET_MS));

describe("ManifestSource: the first list", () => {
  test("an empty directory is accepted with a note, because it may be the wrong one", async () => {
    await make().start(sink);
    expect(sink.calls).toEqual(["synced", "flush"]);
    expect(notes).toEqual([`${directory} has no *.yaml, *.yml or *.json file yet`]);
  });

  test.each<[string, (path: string) => Promise<unknown>, string]>([
    ["a missing directory", async () => undefined, "the directory does not exist"],
    ["a file in its place", (path) => writeFile(path, ""), "not a directory"],
  ])("%s is an error", async (_name, prepare, reason) => {
    const path = join(directory, "sub");
    await prepare(path);
    for (const watch of [undefined, openInotify]) {
      const failing = make({ directory: path, watch });
      await expect(failing.start(sink)).rejects.toMatchObject({
        code: "EMANIFESTS",
        message: expect.stringContaining(reason),
      });
      await failing.stop();
    }
    expect(sink.calls).toEqual([]);
  });

  test("all formats and kinds are read, in the order of the file names", async () => {
    put({
      "a.yaml":
        "apiVersion: v1\nkind: Service\nmetadata: {name: one}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n}\n",
      "b.yml": JSON.stringify(
        list({ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { name: "s", namespace: "x" } }),
      ),
      "c.json": list(
        { apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDR", metadata: { name: "kubernetes" } },
        svc("two"),
      ),
      "d.JSON": svc("three"),
      "e.txt": "not: [a manifest",
      ".f.yaml": "not: [a manifest",
      "g.yaml~": "not: [a manifest",
    });
    await mkdir(join(directory, "h.yaml"));
    await make().start(sink);
    expect(sink.calls).toEqual([
      "+ Service default/one",
      "+ Node n",
      "+ EndpointSlice x/s",
      "+ ServiceCIDR kubernetes",
      "+ Service default/two",
      "+ Service default/three",
      "synced",
      "flush",
    ]);
    expect(problems).toEqual([]);
  });

  test("more files than are read at a time are all read", async () => {
    const names = Array.from({ length: 40 }, (_, i) => `s${i}`);
    put(Object.fromEntries(names.map((name) => [`${name}.json`, svc(name)])));
    await make().start(sink);
    expect([...sink.objects.keys()].sort()).toEqual(names.map((name) => `Service default/${name}`).sort());
  });

  test("a file that does not parse is reported with line and column, and the rest is used", async () => {
    put({ "a.yaml": "a: 1\nb: [1\nc: 2", "b.json": '{\n  "kind": }', "c.json": svc("web") });
    await make().start(sink);
    expect([...sink.objects.keys()]).toEqual(["Service default/web"]);
    expect(problems).toMatchObject([
      { file: "a.yaml", served: "nothing", line: 3, column: 1 },
      { file: "b.json", served: "nothing", line: 2, column: 11 },
    ]);
  });

  test("paths that are not files, or cannot be read, are reported, and the rest is used", async () => {
    put({ "b.json": svc("web"), "c.json": svc("secret") });
    await symlink(join(directory, "loop.yaml"), join(directory, "loop.yaml"));
    await symlink("/dev/zero", join(directory, "zero.yaml"));
    await chmod(join(directory, "c.json"), 0);
    await make().start(sink);
    expect(problems.map(({ file, reason }) => `${file} ${reason}`)).toEqual([
      // Root can read everything.
      ...(process.getuid?.() === 0 ? [] : [expect.stringContaining("c.json cannot be read: EACCES")]),
      expect.stringContaining("loop.yaml cannot be read: ELOOP"),
      "zero.yaml is not a regular file",
    ]);
    expect(sink.objects.has("Service default/web")).toBe(true);
  });

  test("a dangling link is not a file", async () => {
    await symlink("nowhere.yaml", join(directory, "a.yaml"));
    await make().start(sink);
    expect(problems).toEqual([]);
  });

  test("other kinds are skipped with one note each", async () => {
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "p" } };
    put({ "a.json": list(pod, pod), "b.json": pod, "c.json": { ...pod, kind: "Secret" } });
    await make().start(sink);
    expect(notes).toEqual([
      "Pod (v1) objects are skipped (the first one is in a.json)",
      "Secret (v1) objects are skipped (the first one is in c.json)",
    ]);
    expect(problems).toEqual([]);
  });

  test("the same object in two files counts in the first file, and both are named", async () => {
    put({
      "b.json": svc("web", "10.0.0.2"),
      "a.json": svc("web", "10.0.0.1"),
      "c.json": list(svc("db"), svc("db", "10.0.0.9")),
    });
    await make().start(sink);
    expect(clusterIP("web")).toBe("10.0.0.1");
    expect(clusterIP("db")).toBe("10.0.0.1");
    expect(problems).toMatchObject([
      {
        file: "b.json",
        served: "rest",
        reason: "Service default/web is also in a.json, which comes first and is used",
      },
      { file: "c.json", served: "rest", reason: "Service default/db occurs twice; the first one is used" },
    ]);
  });

  test("values that are not objects are reported, and the rest of the file is used", async () => {
    put({ "a.yaml": `just text\n---\n${JSON.stringify(svc("web"))}` });
    await make().start(sink);
    expect(clusterIP("web")).toBe("10.0.0.1");
    expect(problems).toMatchObject([{ file: "a.yaml", served: "rest", reason: "document 1 is not an object" }]);
  });

  test("without watch, later changes do not reach the sink", async () => {
    await make().start(sink);
    sink.calls.length = 0;
    put({ "a.json": svc("web") });
    await quiet();
    expect(sink.calls).toEqual([]);
  });
});

describe("ManifestSource: changes", () => {
  test("an edit reaches the sink within milliseconds, and only with the difference", async () => {
    await watching({ "a.json": list(svc("web"), svc("db")), "b.json": svc("other") });
    const setting = vi.spyOn(globalThis, "setTimeout");
    onTestFinished(() => setting.mockRestore());
    for (let i = 2; i < 12; i++) {
      setting.mockClear();
      put({ "a.json": list(svc("web", `10.0.0.${i}`), svc("db")) });
      expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
      // The time that the program waits by itself; the test's own limit does not count.
      const waits = setting.mock.calls.map(([, ms = 0]) => ms).filter((ms) => ms !== EVENTUALLY_MS);
      expect(waits.reduce((sum, ms) => sum + ms, 0)).toBeLessThan(30);
    }
    expect(clusterIP("web")).toBe("10.0.0.11");
  });

  test("new files are read, and deleted files remove their objects", async () => {
    await watching({ "a.json": svc("web") });
    put({ "b.json": list(svc("db"), svc("cache")) });
    expect(await sink.next()).toEqual(["+ Service default/db", "+ Service default/cache", "flush"]);
    await unlink(join(directory, "b.json"));
    expect((await sink.next()).sort()).toEqual(["- Service default/cache", "- Service default/db", "flush"]);
    await unlink(join(directory, "a.json"));
    expect(await sink.next()).toEqual(["- Service default/web", "flush"]);
  });

  test("an object that a file no longer contains is removed", async () => {
    await watching({ "a.json": list(svc("web"), svc("db")) });
    put({ "a.json": svc("db") });
    expect(await sink.next()).toEqual(["- Service default/web", "flush"]);
  });

  test("the same content again is no change", async () => {
    await watching({ "a.json": svc("web") });
    put({ "a.json": `${JSON.stringify(svc("web"), null, 2)}\n` });
    await quiet();
    expect(sink.calls).toEqual([]);
  });

  test("an editor may replace the file by a rename", async () => {
    await watching({ "a.json": list(svc("web"), svc("db")) });
    put({ ".a.json.swp": list(svc("web", "10.0.0.2"), svc("db")) });
    await rename(join(directory, ".a.json.swp"), join(directory, "a.json"));
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
  });

  test("an editor may move the old file away first", async () => {
    await watching({ "a.json": list(svc("web"), svc("db")) }, { settleMs: 60_000 });
    await rename(join(directory, "a.json"), join(directory, "a.json~"));
    await new Promise((resolve) => setTimeout(resolve, 10));
    put({ "a.json": list(svc("web", "10.0.0.2"), svc("db")) });
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
    await quiet();
    expect(sink.calls).toEqual([]);
  });

  test("a half-written file removes nothing", async () => {
    const asYaml = (...objects: unknown[]) => objects.map((object) => JSON.stringify(object)).join("\n---\n");
    await watching({ "a.yaml": asYaml(svc("web"), svc("db")) }, { settleMs: 60_000 });
    const text = asYaml(svc("web", "10.0.0.2"), svc("db", "10.0.0.3"));
    for (const end of [0, 40, text.indexOf("---"), text.length]) {
      put({ "a.yaml": text.slice(0, end) });
      await new Promise((resolve) => setTimeout(resolve, 15));
    }
    await eventually(() => expect([clusterIP("web"), clusterIP("db")]).toEqual(["10.0.0.2", "10.0.0.3"]));
    expect(sink.calls.filter((call) => call.startsWith("-"))).toEqual([]);
    expect(problems).toEqual([]);
  });

  test("a file that stops parsing keeps its last good version and is reported once", async () => {
    await watching({ "a.yaml": JSON.stringify(svc("web")) });
    put({ "a.yaml": "a: [\nb: 1" });
    await eventually(() => expect(problems).toHaveLength(1));
    put({ "a.yaml": "a: [\nb: 1" });
    await quiet();
    expect(sink.calls).toEqual([]);
    expect(problems).toMatchObject([{ file: "a.yaml", served: "last", line: 2, column: 1 }]);
    put({ "a.yaml": JSON.stringify(svc("web", "10.0.0.2")) });
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
  });

  test("an emptied file keeps its last good version, because it may be truncated", async () => {
    await watching({ "a.yaml": JSON.stringify(svc("web")) });
    put({ "a.yaml": "" });
    await eventually(() => expect(problems).toMatchObject([{ file: "a.yaml", served: "last" }]));
    expect(sink.calls).toEqual([]);
    expect(source?.gaps()).toEqual({ files: ["a.yaml"], empty: false });
  });

  test("a resolved problem is followed by a flush, even if no object changed", async () => {
    await watching({ "a.yaml": JSON.stringify(svc("web")), "b.yaml": "a: [" });
    expect(source?.gaps()).toEqual({ files: ["b.yaml"], empty: false });
    await unlink(join(directory, "b.yaml"));
    expect(await sink.next()).toEqual(["flush"]);
    expect(source?.gaps()).toEqual({ files: [], empty: false });
  });

  test("the periodic check finds a change without an event", async () => {
    const elsewhere = temporaryDirectory();
    put({ "a.json": svc("web"), "b.json": svc("db") });
    // Written through its other name, in a directory that is not watched.
    await link(join(directory, "a.json"), join(elsewhere, "a"));
    await watching({}, { checkEveryMs: 200 });
    await writeFile(join(elsewhere, "a"), JSON.stringify(svc("web", "10.0.0.2")));
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
    await quiet();
    expect(sink.calls).toEqual([]);
  });

  test("the swapped link of a mounted ConfigMap is followed", async () => {
    const fill = (version: string, ...services: string[]) => {
      mkdirSync(join(directory, version));
      for (const name of services)
        writeFileSync(join(directory, version, `${name}.json`), JSON.stringify(svc(name, version.slice(2))));
      symlinkSync(version, join(directory, "..data_tmp"));
      renameSync(join(directory, "..data_tmp"), join(directory, "..data"));
    };
    fill("..10.0.0.1", "web", "db");
    for (const name of ["web", "db"]) await symlink(join("..data", `${name}.json`), join(directory, `${name}.json`));
    await make({ watch: openInotify }).start(sink);
    expect(await sink.next()).toEqual(["+ Service default/db", "+ Service default/web", "synced", "flush"]);
    fill("..10.0.0.2", "web", "db");
    await rm(join(directory, "..10.0.0.1"), { recursive: true });
    expect(await sink.next()).toEqual(["+ Service default/db", "+ Service default/web", "flush"]);
    fill("..10.0.0.3", "web");
    await unlink(join(directory, "db.json"));
    expect(await sink.next()).toContain("+ Service default/web");
    expect(await sink.next()).toEqual(["- Service default/db", "flush"]);
    expect(problems).toEqual([]);
  });

  test("an edit of a file elsewhere that a link refers to is read", async () => {
    const elsewhere = temporaryDirectory();
    await writeFile(join(elsewhere, "x"), JSON.stringify(svc("web")));
    await symlink(join(elsewhere, "x"), join(directory, "a.json"));
    await watching({});
    await writeFile(join(elsewhere, "x"), JSON.stringify(svc("web", "10.0.0.2")));
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
  });

  test("a replaced directory is read again", async () => {
    const path = join(directory, "live");
    await mkdir(path);
    await writeFile(join(path, "a.json"), JSON.stringify(svc("web")));
    await watching({}, { directory: path });
    await mkdir(join(directory, "next"));
    await writeFile(join(directory, "next", "a.json"), JSON.stringify(svc("web", "10.0.0.2")));
    await rename(path, join(directory, "old"));
    await eventually(() => expect(problems).toHaveLength(1));
    expect(sink.calls).toEqual([]);
    expect(problems).toMatchObject([{ file: path, reason: expect.stringContaining("ENOENT") }]);
    await rename(join(directory, "next"), path);
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
    await writeFile(join(path, "a.json"), JSON.stringify(svc("web", "10.0.0.3")));
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
  });

  test("a change while the first list is read is not lost", async () => {
    put(Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`${i}.json`, svc(`s${i}`)])));
    const started = make({ watch: openInotify }).start({
      upsert: (object) => sink.upsert(object),
      remove: (kind, name) => sink.remove(kind, name),
      synced: () => sink.synced(),
      flush: () => sink.flush(),
    });
    put({ "0.json": svc("s0", "10.0.0.99") });
    await started;
    await eventually(() => expect(clusterIP("s0")).toBe("10.0.0.99"));
  });

  test("nothing reaches the sink after stop", async () => {
    await watching({ "a.json": svc("web") });
    put({ "a.json": svc("web", "10.0.0.2") });
    await source?.stop();
    const before = sink.calls.length;
    put({ "a.json": svc("web", "10.0.0.3") });
    await quiet();
    expect(sink.calls).toHaveLength(before);
  });
});

describe("ManifestSource: one object in several files, over time", () => {
  test("the next file's version is used when the first file drops it, until the first file has it again", async () => {
    await watching({
      "a.json": svc("web", "10.0.0.1"),
      "b.json": svc("web", "10.0.0.2"),
      "c.json": svc("web", "10.0.0.3"),
    });
    await unlink(join(directory, "a.json"));
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
    expect(clusterIP("web")).toBe("10.0.0.2");
    put({ "b.json": svc("db") });
    expect((await sink.next()).sort()).toEqual(["+ Service default/db", "+ Service default/web", "flush"]);
    expect(clusterIP("web")).toBe("10.0.0.3");
    problems.length = 0;
    put({ "a.json": svc("web", "10.0.0.4") });
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
    expect(clusterIP("web")).toBe("10.0.0.4");
    expect(problems).toMatchObject([
      {
        file: "c.json",
        served: "rest",
        reason: "Service default/web is also in a.json, which comes first and is used",
      },
    ]);
  });

  test("an edit of a file that does not count changes nothing", async () => {
    await watching({ "a.json": svc("web", "10.0.0.1"), "b.json": svc("web", "10.0.0.2") });
    put({ "b.json": svc("web", "10.0.0.3") });
    await quiet();
    expect(sink.calls).toEqual([]);
    expect(clusterIP("web")).toBe("10.0.0.1");
  });

  test("an object that moves to another file is neither deleted nor a conflict", async () => {
    await watching({ "a.json": svc("db"), "b.json": list(svc("web"), svc("cache")) }, { debounceMs: 30 });
    put({ "a.json": list(svc("db"), svc("web")), "b.json": svc("cache") });
    await quiet();
    expect(sink.calls.filter((call) => call !== "flush")).toEqual([]);
    expect(sink.objects.size).toBe(3);
  });

  test("if the next file cannot be read now, its last good version is used", async () => {
    await watching({ "a.json": svc("web", "10.0.0.1"), "b.json": svc("web", "10.0.0.2") });
    put({ "b.json": "{" });
    await eventually(() => expect(problems).toHaveLength(2));
    await unlink(join(directory, "a.json"));
    expect(await sink.next()).toEqual(["+ Service default/web", "flush"]);
    expect(clusterIP("web")).toBe("10.0.0.2");
  });
});
