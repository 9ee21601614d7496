/** deploy/image/: the files that the image's build generates from the program, and how its base images are pinned. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeImage } from "../../bench/image.ts";
import { eventually } from "../../lab/eventually.ts";
import { longDescribe } from "../../support/long.ts";
import { licensed } from "../../support/notices.ts";

interface Package {
  readonly name: string;
  readonly version: string;
}
const recorder = fileURLToPath(new URL("../../support/record-modules.mjs", import.meta.url));
const without = (all: readonly string[], some: readonly string[]): string[] => all.filter((one) => !some.includes(one));

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "image-"));
});
afterAll(() => rmSync(directory, { recursive: true }));

/** Runs a script with our Node, and returns its output. */
function run(script: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): string {
  const done = spawnSync(process.execPath, [script, ...args], { encoding: "utf8", env: { ...process.env, ...env } });
  if (done.status !== 0) throw new Error(`${script}: exit ${done.status}\n${done.stderr}`);
  return done.stdout;
}

describe("bundle.mjs", () => {
  let image: string;
  beforeAll(() => {
    image = join(directory, "opt");
    const env = { NODE_OPTIONS: `--import=${recorder}`, RECORDED_MODULES: join(directory, "modules") };
    run(join(ROOT, "deploy/image/bundle.mjs"), [image], env);
  });

  test("prints the same version and the same ruleset as the program in dist/, without the packages", () => {
    const manifests = join(ROOT, "deploy/examples/manifests");
    const config = join(ROOT, "deploy/examples/config.yaml");
    const render = ["render", "--manifests", manifests, "--config", config, "--allow-incomplete"];
    for (const args of [["--version"], render]) {
      expect(run(join(image, "dist/main.js"), args)).toBe(run(join(ROOT, "dist/main.js"), args));
    }
  });

  test("finds the addon in the image", () => {
    const release = join(image, "build/Release");
    mkdirSync(release, { recursive: true });
    writeFileSync(join(release, "nft_proxier.node"), "no addon");
    const done = spawnSync(process.execPath, [join(image, "dist/main.js"), "conntrack", "count"], { encoding: "utf8" });
    expect(done.stderr).toContain(join(release, "nft_proxier.node"));
  });

  test("runs the credential plugins of a kubeconfig", () => {
    const plugin = join(directory, "plugin.mjs");
    const status = { token: "from-the-plugin" };
    const credential = { apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential", status };
    writeFileSync(plugin, `console.log(${JSON.stringify(JSON.stringify(credential))});\n`);
    const exec = {
      apiVersion: credential.apiVersion,
      command: process.execPath,
      args: [plugin],
      interactiveMode: "Never",
    };
    const kubeconfig = {
      "current-context": "c",
      clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      users: [{ name: "u", user: { exec } }],
    };
    const file = join(directory, "kubeconfig");
    writeFileSync(file, JSON.stringify(kubeconfig));
    const chunks = join(image, "dist/chunks");
    const chunk = join(chunks, String(readdirSync(chunks).find((name) => name.startsWith("plugin-credentials"))));
    const script = join(directory, "credentials.mjs");
    writeFileSync(
      script,
      `import { readKubeconfig } from ${JSON.stringify(join(ROOT, "dist/objects/kubernetes/kubeconfig.js"))};
       import { PluginCredentials } from ${JSON.stringify(chunk)};
       const file = ${JSON.stringify(file)};
       const credentials = await PluginCredentials.load(await readKubeconfig(file, ""), { file, proxyUrl: "" });
       console.log(JSON.stringify((await credentials.next()).headers));`,
    );
    expect(run(script, [])).toContain("from-the-plugin");
  });

  test("gives commands the compiled code that the image's build left, and a daemon does not look for it", () => {
    mkdirSync(join(image, "cache"), { recursive: true });
    const render = ["render", "--manifests", join(ROOT, "deploy/examples/manifests"), "--allow-incomplete"];
    const env = { ...process.env, NODE_DEBUG_NATIVE: "COMPILE_CACHE" };
    const said = (args: readonly string[]): string =>
      spawnSync(process.execPath, [join(image, "dist/main.js"), ...args], { encoding: "utf8", env }).stderr;
    expect(said(render)).toContain("writing cache for");
    const again = said(render);
    expect(again.match(/was accepted/g)?.length).toBeGreaterThan(20);
    expect(again).not.toMatch(/was rejected|writing cache for/);
    expect(said(["run", "--help"])).not.toContain("cache for");
  });

  test("has a twentieth of the packages' size", () => {
    const files = readdirSync(image, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
    expect(bytes).toBeLessThan(8_000_000);
    expect(files.filter(({ name }) => /\.(map|d\.ts)$/.test(name))).toEqual([]);
  });

  test("the licences and the SBOM have every package whose code it contains, or that the addon is compiled with", () => {
    const modules = readFileSync(join(directory, "modules"), "utf8").replaceAll(
      "\0rolldown/",
      "/node_modules/rolldown/",
    );
    // Which headers the compiler has read.
    const compiled = globSync("build/Release/.deps/**/nft_proxier*/**/*.d", { cwd: ROOT });
    expect(compiled.length).toBeGreaterThan(5);
    const headers = compiled.map((file) => readFileSync(join(ROOT, file), "utf8"));
    const inPackages = [modules, ...headers].flatMap(
      (text) => text.match(/node_modules\/(?:@[^/\s]+\/)?[^/\s]+(?=\/)/g) ?? [],
    );
    // Node's own headers and licence come with Node.
    const folders = [...new Set(inPackages)].filter((folder) => !folder.includes("/node-linux-"));
    const expected = folders.map((folder) => {
      const { name, version } = JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8")) as Package;
      return `${name} ${version}`;
    });
    expect(expected).toEqual(
      expect.arrayContaining([expect.stringMatching(/^preact /), expect.stringMatching(/^yaml /)]),
    );
    const { packages } = JSON.parse(readFileSync(join(image, "sbom.spdx.json"), "utf8")) as {
      readonly packages: readonly { readonly name: string; readonly versionInfo: string }[];
    };
    const listed = packages.map((one) => `${one.name} ${one.versionInfo}`);
    const entries = licensed(readFileSync(join(image, "licenses.txt"), "utf8"));
    expect({ sbom: without(expected, listed), licenses: without(expected, entries) }).toEqual({
      sbom: [],
      licenses: [],
    });
  });
});

/** Prints the hash of a string as V8 keeps it in the heap, and a random number. Its only argument is the file that gets its output. */
const PROBE = `
globalThis.names = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => ["name" + i, i]));
Math.random();
require("v8").startupSnapshot.setDeserializeMainFunction(() => {
  const fs = process.getBuiltinModule("fs");
  process.getBuiltinModule("v8").setFlagsFromString("--allow-natives-syntax");
  globalThis.shown = Object.keys(names)[7];
  new (process.getBuiltinModule("vm").Script)("%DebugPrint(shown)").runInThisContext();
  const [, address] = /DebugPrint: (0x[0-9a-f]+): \\[String\\]/.exec(fs.readFileSync(process.argv[2], "utf8"));
  const hash = Buffer.alloc(4);
  // A tagged pointer; the hash follows the pointer to the map.
  fs.readSync(fs.openSync("/proc/self/mem"), hash, 0, 4, BigInt(address) - 1n + 8n);
  console.log("\\n" + JSON.stringify({ hash: hash.toString("hex"), random: Math.random() }));
});`;

describe("snapshot.mjs", () => {
  test("makes nearly the same snapshot twice, but each process has a hash seed and random numbers of its own", () => {
    const target = join(directory, "seeds");
    const blob = join(target, "daemon.blob");
    const made = [1, 2].map(() => {
      mkdirSync(join(target, "dist/chunks"), { recursive: true });
      writeFileSync(join(target, "dist/chunks/daemon.cjs"), PROBE);
      run(join(ROOT, "deploy/image/snapshot.mjs"), [target]);
      return readFileSync(blob);
    });
    expect(made[0]).toHaveLength(made[1].length);
    expect(made[0].filter((byte, at) => byte !== made[1][at]).length).toBeLessThan(100);
    const printed = [1, 2].map((time) => {
      const file = join(target, `output-${time}`);
      const fd = openSync(file, "w");
      const words = ["--no-warnings", "--snapshot-blob", blob, "probe", file];
      expect(spawnSync(process.execPath, words, { stdio: ["ignore", fd, "inherit"] }).status).toBe(0);
      closeSync(fd);
      return JSON.parse(readFileSync(file, "utf8").trimEnd().split("\n").at(-1) ?? "") as object;
    });
    const [first, second] = printed.map((one) => Object.entries(one).map(([name, value]) => `${name}: ${value}`));
    expect(first).toEqual([expect.stringMatching(/^hash: (?!0{8})\w{8}$/), expect.stringMatching(/^random: 0\.\d+/)]);
    expect(first.filter((line) => second.includes(line))).toEqual([]);
  });
});

longDescribe("the startup snapshot", () => {
  let launcher: string;
  let image: string;
  beforeAll(() => {
    image = join(directory, "snapshot");
    launcher = makeImage(image);
  });

  /** The command's output, stdout and stderr. */
  const said = (name: string, args: readonly string[]): string => {
    const { stdout, stderr } = spawnSync(join(image, name), args, { encoding: "utf8" });
    return `${stdout}${stderr}`;
  };

  test("starts daemons, and every other command starts from files", () => {
    const version = said("nft-proxier", ["--version"]);
    expect(version).toBe(run(join(ROOT, "dist/main.js"), ["--version"]));
    const help = said("nft-proxier", ["services", "--help"]);
    expect(help).toContain("Usage: nft-proxier services");
    const blob = join(image, "daemon.blob");
    cpSync(blob, `${blob}.whole`);
    writeFileSync(blob, "no snapshot");
    for (const args of [["--version"], ["run", "--help"]]) expect(said("nft-proxier", args)).toMatch(/snapshot/i);
    expect(said("nft-proxier", ["services", "--help"])).toBe(help);
    rmSync(blob);
    expect(said("nft-proxier", ["--version"])).toBe(version);
    cpSync(`${blob}.whole`, blob);
  });

  test("tells the program under which name it was called", () => {
    expect(said("kube-proxy", ["--help"])).toContain("Usage: kube-proxy");
    expect(said("nft-proxier", ["--help"])).toContain("Usage: nft-proxier");
    expect(said("kube-proxy", ["services", "--help"])).toContain("Usage: kube-proxy services");
  });

  test("has the compiled code of only those Node modules that are loaded later", () => {
    expect(statSync(join(image, "daemon.blob")).size).toBeLessThan(9_300_000);
  });

  /** Starts a daemon, which waits for an API server that it cannot reach. */
  async function waiting(kubeconfig: object): Promise<{ readonly program: ChildProcess; readonly said: string }> {
    const file = join(directory, "snapshot-kubeconfig");
    writeFileSync(file, JSON.stringify(kubeconfig));
    const flags = [`--kubeconfig=${file}`, "--hostname-override=node"];
    const isolated = ["--net", launcher, ...flags, "--healthz-bind-address=", "--metrics-bind-address="];
    const program = spawn("unshare", isolated, { stdio: ["ignore", "ignore", "pipe"] });
    let stderr = "";
    program.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    await eventually(() => expect(stderr).toContain("ENETUNREACH"));
    return { program, said: stderr };
  }

  test("takes no memory after the start: no block of memory is as large as the snapshot", async () => {
    const cluster = { server: "http://127.0.0.1:1" };
    const { program } = await waiting({
      "current-context": "c",
      clusters: [{ name: "c", cluster }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      users: [{ name: "u", user: { token: "token" } }],
    });
    const mappings = readFileSync(`/proc/${program.pid}/smaps`, "utf8").split("VmFlags");
    const blocks = mappings.filter((mapping) => !mapping.includes("[heap]"));
    const anonymous = blocks.map((mapping) => Number(/^Anonymous: +(\d+) kB$/m.exec(mapping)?.[1] ?? 0) * 1024);
    program.kill("SIGKILL");
    expect(Math.max(...anonymous)).toBeGreaterThan(1_000_000);
    expect(Math.max(...anonymous)).toBeLessThan(statSync(join(image, "daemon.blob")).size / 2);
  });

  test("loads the Kubernetes library from files if credentials need it", async () => {
    const user = {
      "auth-provider": { name: "gcp", config: { "access-token": "token", expiry: "2999-01-01T00:00:00Z" } },
    };
    const kubeconfig = {
      "current-context": "c",
      clusters: [{ name: "c", cluster: { server: "http://127.0.0.1:1" } }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      users: [{ name: "u", user }],
    };
    const { program, said } = await waiting(kubeconfig);
    program.kill("SIGKILL");
    expect(said).not.toMatch(/ERR_|not in the startup snapshot|stack/);
  });
});

describe("pin.mjs", () => {
  const digest = (digit: number): string => `sha256:${String(digit).repeat(64)}`;

  test("replaces the digest of each base image", () => {
    const bin = join(directory, "bin");
    mkdirSync(bin);
    // Replaces docker: the digest shows which image was requested.
    const docker = `#!/bin/sh\ncase "$4" in node:24.21.0-bookworm) echo ${digest(1)};; gcr.io/*) echo ${digest(2)};; *) exit 1;; esac\n`;
    writeFileSync(join(bin, "docker"), docker, { mode: 0o755 });
    const file = join(directory, "Dockerfile");
    cpSync(join(ROOT, "deploy/Dockerfile"), file);
    const env = { PATH: `${bin}:${process.env["PATH"]}` };
    const images = (): string[] => readFileSync(file, "utf8").match(/^ARG \w+_IMAGE=.*$/gm) ?? [];
    const before = images().map((line) => line.replace(/@\S+/, ""));
    for (let time = 0; time < 2; time++) {
      run(join(ROOT, "deploy/image/pin.mjs"), [file], env);
      expect(images().map((line) => line.replace(/@\S+/, ""))).toEqual(before);
      expect(images().map((line) => /@(\S+)/.exec(line)?.[1])).toEqual([digest(1), digest(2)]);
    }
  });
});
