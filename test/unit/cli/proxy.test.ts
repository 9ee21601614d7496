import { writeFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { pino } from "pino";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { loggerOptions } from "../../../src/base/logger.js";
import { ALL_FLAGS } from "../../../src/cli/flags/flags-help.js";
import { main } from "../../../src/cli/commands/program.js";
import { proxyCommand } from "../../../src/cli/commands/proxy.js";
import { readFlags } from "../../../src/cli/read-flags.js";
import type { serve, ServeOptions } from "../../../src/cli/commands/serve.js";
import { parseConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import { eventually } from "../../lab/eventually.ts";
import { KUBEADM_CONFIG, kubeadmArguments } from "../config/kubeadm.js";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { catchOutput, type Printed } from "./printed.ts";

interface Line {
  readonly level: string;
  readonly msg: string;
}

let created: unknown[][] = [];
let logged: Line[] = [];

vi.mock("../../../src/base/logger.js", async (original) => ({
  ...(await original<object>()),
  createLogger: (level: unknown, format: unknown) => {
    created.push([level, format]);
    const sink = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        logged.push(JSON.parse(String(chunk)) as Line);
        done();
      },
    });
    return Promise.resolve(pino(loggerOptions("trace"), sink));
  },
}));

const said = (level: "info" | "warn" | "error"): string[] =>
  logged.filter((line) => line.level === level).map(({ msg }) => msg);

let printed: Printed;
let directory: string;
let file: string;

beforeEach(async () => {
  printed = catchOutput();
  created = [];
  logged = [];
  directory = temporaryDirectory();
  file = join(directory, "config.conf");
  await writeFile(file, KUBEADM_CONFIG);
});
/** Runs the command line with `start` instead of `serve`. */
async function run(argv: string[], start: typeof serve): Promise<number> {
  return proxyCommand({ flags: readFlags(argv, ALL_FLAGS).values, own: {} }, start);
}

/** With the commit where git is asked in a checkout. */
const VERSION = /^\d+\.\d+\.\d+( \(commit [0-9a-f]{12}(-dirty)?\))?\n$/;

describe("the version", () => {
  it.each<[string[], RegExp]>([
    [["--version"], VERSION],
    [["--version=true"], VERSION],
    [
      ["--version=raw"],
      /^version\.Info\{Major:"\d+", Minor:"\d+", GitVersion:"v\d+\.\d+\.\d+".*Platform:"linux\/\w+"\}\n$/,
    ],
    [["--version", "--proxy-mode=ipvs"], VERSION],
  ])("%j", async (argv, text) => {
    expect(await main(argv)).toBe(0);
    expect(printed.out).toMatch(text);
  });
});

describe("the command line without a sub-command", () => {
  it.each<[string[], string]>([
    [["--config", "/nonexistent/config.conf"], "/nonexistent/config.conf: cannot be read: ENOENT"],
    [["--config=FILE"], "no-such-kubeconfig"],
  ])("%j fails with the reason, and exits with 1", async (argv, words) => {
    // If these tests run on a node, kubeadm's own file may exist.
    await writeFile(file, KUBEADM_CONFIG.replace(/kubeconfig: .*/, `kubeconfig: ${directory}/no-such-kubeconfig`));
    const code = await main(
      argv.map((word) => word.replace("FILE", file)),
      "kube-proxy",
    );
    expect(code).toBe(1);
    expect(printed.err).toContain(words);
    expect(printed.err).toMatch(/^kube-proxy: /);
    expect(printed.err).not.toContain("    at ");
  });

  it.each<[string[], string[]]>([
    [
      ["--healtz-port=0", "--hostname-overide", "a"],
      ["unknown option '--healtz-port'", "Did you mean --healthz-port?", "Did you mean --hostname-override?"],
    ],
    [
      ["--proxy-mode", "iptabels", "--v=x"],
      ["--v=x: must be", '--proxy-mode: "iptabels" must be nftables, iptables or ipvs: did you mean iptables?'],
    ],
    [["--config"], ["argument missing"]],
    [["serve"], ["unknown command 'serve'"]],
    [["--v=4", "--manifests", "x", "run"], ["--v, --manifests: not allowed before a command; see run --help"]],
    [["--masquerade-all", "false"], ["false is not a command; a boolean flag takes its value as --flag=false"]],
    [
      ["--v=2", "statsu"],
      ["unknown command 'statsu'", "Did you mean status?"],
    ],
    [["help", "run", "x"], ["run has no command 'x'"]],
    [["help", "conntrack", "lisst"], ["conntrack has no command 'lisst'"]],
    [["--service-counters=all"], ["--service-counters=all: must be one of service, endpoint, off"]],
    [
      ["--flowtable=eth0,*"],
      ["--flowtable=eth0,*: must be interface names, or prefixes that end with *, separated by commas"],
    ],
    [["--connection-series=-1"], ["--connection-series=-1: must be from 0 to 999999"]],
    [["--conntrack-gc-interval=25h"], ["--conntrack-gc-interval=25h: must be 0, or from 10s to 24h"]],
    [["--conntrack-gc-interval=x"], ['--conntrack-gc-interval=x: must be a duration such as "30s"']],
    [["--cleanup=maybe"], ["--cleanup=maybe: must be true or false"]],
    [
      ["--own-table=yes", "--cleanup=maybe"],
      ["--cleanup=maybe: must be", "--own-table=yes: must be true or false"],
    ],
  ])("%j is invalid and exits with 2", async (argv, words) => {
    expect(await main(argv, "kube-proxy")).toBe(2);
    for (const word of words) expect(printed.err).toContain(word);
  });

  it("it starts without any argument if it is called kube-proxy", async () => {
    // If these tests run in a pod, there is a cluster.
    vi.stubEnv("KUBERNETES_SERVICE_HOST", "");
    expect(await main([], "kube-proxy")).toBe(1);
    expect(printed.err).toContain("no API server is configured");
    vi.unstubAllEnvs();
  });
});

describe("kubeadm's stock file and command line", () => {
  it("start without changes", async () => {
    const started: { config: ProxyConfig; options: ServeOptions }[] = [];
    const code = await run(kubeadmArguments(file, "Node-1"), (config, options) => {
      started.push({ config, options });
      return Promise.resolve(0);
    });
    expect(code).toBe(0);
    expect(started).toHaveLength(1);
    expect(started[0]?.config).toEqual({ ...parseConfig(KUBEADM_CONFIG, file).config, hostnameOverride: "node-1" });
    expect(started[0]?.options.pages?.configz).toMatchObject({
      hostnameOverride: "node-1",
      healthzBindAddress: "0.0.0.0:10256",
    });
    expect(started[0]?.options.pages?.flagz).toContain("\nhostname-override=Node-1\n");
    expect(said("warn")).toEqual([]);
    expect(created).toEqual([["info", ""]]);
  });
});

describe("together with --config", () => {
  const done: typeof serve = () => Promise.resolve(0);

  it("flags that kube-proxy ignores are named", async () => {
    await run([`--config=${file}`, "--cluster-cidr=10.0.0.0/8", "--proxy-mode=iptables", "--v=1", "--master=a"], done);
    expect(said("warn")).toEqual([
      `ignored because --config is given, as in kube-proxy: --proxy-mode, --cluster-cidr; set them in ${file}`,
    ]);
  });

  it.each<[string[], [string, string]]>([
    [["--v=1"], ["info", ""]],
    [["--v=3"], ["verbose", ""]],
    [["--v=4"], ["debug", ""]],
    [
      ["--v=6", "--logging-format=json"],
      ["trace", "json"],
    ],
    [["--logging-format=text"], ["info", "text"]],
  ])("%j sets the log", async (argv, options) => {
    await run([`--config=${file}`, ...argv], done);
    expect(created).toEqual([options]);
  });

  it("--init-only is passed on", async () => {
    const start = vi.fn(done);
    await run([`--config=${file}`, "--init-only=true"], start);
    expect(start.mock.calls[0]?.[1]).toMatchObject({ initOnly: true });
  });
});

describe("--write-config-to", () => {
  it("writes the effective configuration, and exits with 0", async () => {
    const written = join(directory, "written.yaml");
    expect(await main([`--config=${file}`, "--hostname-override=a", "--write-config-to", written])).toBe(0);
    const again = parseConfig(await readFile(written, "utf8"), written);
    expect(again.document).toEqual({ ...parseConfig(KUBEADM_CONFIG, file).document, hostnameOverride: "a" });
    expect(again.warnings).toEqual([]);
  });

  it("reports why it cannot write, and exits with 1", async () => {
    expect(await main(["--write-config-to", join(directory, "nowhere", "x.yaml")])).toBe(1);
    expect(printed.err).toContain("--write-config-to: ENOENT");
  });
});

describe("the configuration file", () => {
  const serving: typeof serve = (_config, { signal }) =>
    new Promise((resolve) => signal?.addEventListener("abort", () => resolve(0)));

  it("ends the program with exit code 1 when it changes", async () => {
    const ended = run([`--config=${file}`], serving);
    await eventually(() => expect(created).toHaveLength(1));
    writeFileSync(file, KUBEADM_CONFIG.replace("oomScoreAdj: null", "oomScoreAdj: wrong"));
    await eventually(() => expect(said("error")).toEqual([expect.stringContaining("oomScoreAdj: must be")]));
    writeFileSync(file, KUBEADM_CONFIG.replace("oomScoreAdj: null", "oomScoreAdj: -998"));
    expect(await ended).toBe(1);
    expect(said("info").at(-1)).toContain("configuration file changed");
  });

  it("is read with the same flags when it changes", async () => {
    const ended = run([`--config=${file}`, "--hostname-override=a"], serving);
    await eventually(() => expect(created).toHaveLength(1));
    // The flag overrides the file, so nothing has changed for the program.
    writeFileSync(file, KUBEADM_CONFIG.replace('hostnameOverride: ""', "hostnameOverride: b"));
    await eventually(() => expect(said("info").at(-1)).toContain("without effect"));
    writeFileSync(file, KUBEADM_CONFIG.replace("oomScoreAdj: null", "oomScoreAdj: -998"));
    expect(await ended).toBe(1);
  });
});
