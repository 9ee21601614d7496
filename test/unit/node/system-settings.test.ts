import { chmod, mkdir, readFile, symlink } from "node:fs/promises";
import os from "node:os";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { defaultConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import { applySystemSettings, conntrackMax, loadConntrack } from "../../../src/node/system-settings.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { keptIn, type LogLine } from "../../support/log.ts";
import { putFile, temporaryDirectory } from "../../support/temporary-directory.ts";

const MAX = "proc/sys/net/netfilter/nf_conntrack_max";
const ESTABLISHED = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
const CLOSE_WAIT = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait";
const UDP = "proc/sys/net/netfilter/nf_conntrack_udp_timeout";
const UDP_STREAM = "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream";
const LIBERAL = "proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
const HASH_SIZE = "sys/module/nf_conntrack/parameters/hashsize";
const OOM = "proc/self/oom_score_adj";

/** A node with 8 CPUs and the kernel's defaults. */
const NODE: Readonly<Record<string, string>> = {
  [MAX]: "262144\n",
  [ESTABLISHED]: "432000\n",
  [CLOSE_WAIT]: "60\n",
  [UDP]: "30\n",
  [UDP_STREAM]: "120\n",
  [LIBERAL]: "0\n",
  [HASH_SIZE]: "65536\n",
  [OOM]: "0\n",
};

let root: string;
let lines: LogLine[];

beforeEach(() => {
  root = temporaryDirectory();
  lines = [];
  const [cpu] = os.cpus();
  const spy = vi.spyOn(os, "cpus").mockReturnValue(Array.from({ length: 8 }, () => cpu));
  return () => spy.mockRestore();
});
async function node(files: Readonly<Record<string, string | undefined>> = {}): Promise<void> {
  for (const [file, text] of Object.entries({ ...NODE, ...files })) {
    if (text !== undefined) await putFile(root, file, text);
  }
}

const valueOf = async (file: string): Promise<number> => Number(await readFile(join(root, file), "utf8"));

interface Settings {
  readonly conntrack?: Partial<ProxyConfig["conntrack"]>;
  readonly oomScoreAdj?: number;
}

async function apply(settings: Settings = {}, load?: () => Promise<void>): Promise<readonly LogLine[]> {
  const config = defaultConfig();
  const log = keptIn(lines, "info");
  await applySystemSettings(
    {
      conntrack: { ...config.conntrack, ...settings.conntrack },
      oomScoreAdj: settings.oomScoreAdj ?? config.oomScoreAdj,
    },
    { log, root, loadConntrack: load },
  );
  return lines.filter(({ level }) => level === "warn");
}

describe("the size of the connection table", () => {
  const config = defaultConfig().conntrack;
  it.each([
    { maxPerCore: 32_768, min: 131_072, cpus: 2, max: 131_072 },
    { maxPerCore: 32_768, min: 131_072, cpus: 8, max: 262_144 },
    { maxPerCore: 32_768, min: 131_072, cpus: 32, max: 1_048_576 },
    { maxPerCore: 32_768, min: 131_072, cpus: 96, max: 1_048_576 },
    { maxPerCore: 32_768, min: 2_000_000, cpus: 96, max: 2_000_000 },
    { maxPerCore: 32_768, min: 2_000_000, cpus: 1, max: 2_000_000 },
    { maxPerCore: 1, min: 0, cpus: 4, max: 4 },
    { maxPerCore: 0, min: 131_072, cpus: 8, max: 0 },
  ])("$maxPerCore for each of $cpus CPUs, at least $min: $max", ({ maxPerCore, min, cpus, max }) => {
    expect(conntrackMax({ ...config, maxPerCore, min }, cpus)).toBe(max);
  });

  it("scales with the node's CPUs, and so does its hash", async () => {
    await node();
    expect(await apply({ conntrack: { maxPerCore: 100_000 } })).toEqual([]);
    expect(await valueOf(MAX)).toBe(800_000);
    expect(await valueOf(HASH_SIZE)).toBe(200_000);
  });

  it("is never lowered", async () => {
    await node({ [MAX]: "5000000\n", [HASH_SIZE]: "1250000\n" });
    expect(await apply()).toEqual([]);
    expect(await valueOf(MAX)).toBe(5_000_000);
    expect(await valueOf(HASH_SIZE)).toBe(1_250_000);
  });

  it("is right, but its hash is too small", async () => {
    await node({ [HASH_SIZE]: "16384\n" });
    await apply();
    expect(await valueOf(MAX)).toBe(262_144);
    expect(await valueOf(HASH_SIZE)).toBe(65_536);
  });

  it("is kept with maxPerCore 0", async () => {
    await node({ [MAX]: "1000\n", [HASH_SIZE]: "10\n" });
    expect(await apply({ conntrack: { maxPerCore: 0 } })).toEqual([]);
    expect(await valueOf(MAX)).toBe(1000);
    expect(await valueOf(HASH_SIZE)).toBe(10);
  });
});

describe("timeouts", () => {
  it("are set in seconds, up or down, by default only TCP's", async () => {
    await node();
    expect(await apply()).toEqual([]);
    expect(await valueOf(ESTABLISHED)).toBe(86_400);
    expect(await valueOf(CLOSE_WAIT)).toBe(3600);
    expect(await valueOf(UDP)).toBe(30);
    expect(await valueOf(UDP_STREAM)).toBe(120);
    expect(await valueOf(LIBERAL)).toBe(0);
  });

  it("can all be set", async () => {
    await node();
    const settings = { udpTimeout: 10_500, udpStreamTimeout: 400, tcpBeLiberal: true };
    expect(await apply({ conntrack: settings })).toEqual([]);
    expect(await valueOf(UDP)).toBe(10);
    expect(await valueOf(UDP_STREAM)).toBe(1);
    expect(await valueOf(LIBERAL)).toBe(1);
  });

  it("stay unchanged with 0", async () => {
    await node();
    await apply({ conntrack: { tcpEstablishedTimeout: 0, tcpCloseWaitTimeout: 0 } });
    expect(await valueOf(ESTABLISHED)).toBe(432_000);
    expect(await valueOf(CLOSE_WAIT)).toBe(60);
  });
});

describe("the OOM score", () => {
  it("is kube-proxy's by default", async () => {
    await node();
    expect(await apply()).toEqual([]);
    expect(await valueOf(OOM)).toBe(-999);
  });
});

describe("settings that the kernel does not let us change", () => {
  it("cause one warning each: file, desired and present value, what to do", async () => {
    await node({ [ESTABLISHED]: undefined, [OOM]: undefined, [MAX]: "1000\n" });
    // Replace the file by a directory: not even root can write to that.
    await mkdir(join(root, OOM), { recursive: true });
    const warnings = await apply();
    expect(warnings).toMatchObject([
      { file: `/${OOM}`, desired: -999, err: expect.stringMatching(/EISDIR/) as string },
      { file: `/${ESTABLISHED}`, desired: 86_400, err: expect.stringMatching(/ENOENT/) as string },
    ]);
    expect(warnings[0].hint).toContain("CAP_SYS_RESOURCE");
    expect(warnings[1].hint).toContain("sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400");
    // The other settings are applied all the same.
    expect(await valueOf(MAX)).toBe(262_144);
    expect(await valueOf(CLOSE_WAIT)).toBe(3600);
  });

  it("are named with the present value if they are read-only", async () => {
    await node({ [MAX]: undefined });
    // A kernel setting that nobody may write, root included.
    await symlink("/proc/sys/kernel/ngroups_max", join(root, MAX));
    expect(await apply()).toMatchObject([
      {
        file: `/${MAX}`,
        desired: 262_144,
        present: 65_536,
        err: expect.stringMatching(/^E(ACCES|PERM|ROFS)/) as string,
      },
    ]);
  });

  it("cause no warning if all values are right already", async () => {
    await node({ [ESTABLISHED]: "86400\n", [CLOSE_WAIT]: "3600\n", [OOM]: "-999\n" });
    for (const file of Object.keys(NODE)) await chmod(join(root, file), 0o444);
    await apply();
    expect(lines).toEqual([]);
  });

  it("are not written if a maximum cannot be read, because it might be larger", async () => {
    await node({ [MAX]: "unknown\n" });
    expect(await apply()).toMatchObject([{ file: `/${MAX}`, desired: 262_144, err: "cannot be read" }]);
    expect(await readFile(join(root, MAX), "utf8")).toBe("unknown\n");
  });
});

describe("a kernel without a loaded connection tracker", () => {
  const files = [MAX, ESTABLISHED, CLOSE_WAIT, UDP, UDP_STREAM, LIBERAL, HASH_SIZE];
  const absent = Object.fromEntries(files.map((file) => [file, undefined]));

  it("loads it, and then receives its settings", async () => {
    await node(absent);
    expect(await apply({}, () => node({ [MAX]: "1000\n" }))).toEqual([]);
    expect(await valueOf(MAX)).toBe(262_144);
  });

  it("cannot load it: there are warnings", async () => {
    await node(absent);
    const warnings = await apply({}, () => Promise.reject(new Error("no such module")));
    expect(warnings.map(({ msg }) => msg)).toEqual([
      "loading the kernel's connection tracker failed",
      ...Array<string>(4).fill("changing a system setting failed"),
    ]);
  });

  it("does not load it if no setting is desired", async () => {
    await node(absent);
    let asked = 0;
    const nothing = { maxPerCore: 0, tcpEstablishedTimeout: 0, tcpCloseWaitTimeout: 0 };
    await apply({ conntrack: nothing }, () => Promise.resolve(void asked++));
    expect(asked).toBe(0);
  });

  it("loads it through a rule that is checked and rolled back", async () => {
    const kernel = new FakeKernel();
    await loadConntrack(kernel);
    expect(await kernel.tables()).toEqual([]);
    expect(kernel.commits).toEqual([]);
  });
});
