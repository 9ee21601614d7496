import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { ALL_FLAGS } from "../../../src/cli/flags/flags-help.js";
import { allCommands, describe as describeFlag, shownFlags } from "../../../src/cli/command.js";
import { main, programNamed } from "../../../src/cli/commands/program.js";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { catchOutput, type Printed } from "./printed.ts";

let printed: Printed;
let directory: string;

beforeEach(() => {
  printed = catchOutput();
  directory = temporaryDirectory();
});
const outline = allCommands(programNamed());

describe("the command line", () => {
  it.each([
    [["--help"], ["run", "render", "cleanup"]],
    [
      ["run", "--help"],
      [
        "--manifests <dir>",
        "--config <file>",
        "--once",
        "--allow-incomplete",
        "--own-table",
        "--conntrack-gc-interval",
        "--log-level",
      ],
    ],
    [
      ["render", "--help"],
      ["--manifests <dir>", "--family <family>"],
    ],
    [
      ["validate", "--help"],
      ["--manifests <dir>", "--output <format>", "Exit code 0"],
    ],
    [
      ["cleanup", "--help"],
      ["ip kube-proxy", "iptables-nft", "iptables-legacy", "flowtable"],
    ],
    [
      ["handover", "--help"],
      ["--for <duration>", "--remove", "5m"],
    ],
  ])("%j prints help and exits with 0", async (argv, words) => {
    expect(await main(argv)).toBe(0);
    for (const word of words) expect(printed.out).toContain(word);
  });

  it("the command version prints the version, like the flag", async () => {
    expect(await main(["version"])).toBe(0);
    expect(printed.out).toMatch(/^\d+\.\d+\.\d+/);
  });

  it("help lists commands, and then the flags that people use", async () => {
    expect(await main(["--help"])).toBe(0);
    expect(printed.out.indexOf("\n  run ")).toBeGreaterThan(0);
    expect(printed.out.indexOf("\n  --config <file>")).toBeGreaterThan(printed.out.indexOf("\n  help "));
    expect(printed.out.match(/^  -/gm)).toHaveLength(10);
    expect(printed.out).toContain("help flags");
  });

  it("help lists all flags, and those without effect in one paragraph", async () => {
    expect(await main(["help", "flags"])).toBe(0);
    const [, ignored = ""] = printed.out.split("Accepted and ignored:");
    for (const { name, usage } of ALL_FLAGS) {
      expect(usage.startsWith("ignored: ") ? ignored : printed.out).toContain(`--${name}`);
    }
    expect(ignored.match(/--\w/g)).toHaveLength(16);
  });

  it.each([
    [["help"], []],
    [["help", "run"], ["run"]],
    [
      ["help", "conntrack", "list"],
      ["conntrack", "list"],
    ],
  ])("%j is the help of the command", async (argv, command) => {
    expect(await main(argv)).toBe(0);
    const shown = printed.out;
    printed.out = "";
    await main([...command, "--help"]);
    expect(shown).toBe(printed.out);
  });

  it.each(outline.map(({ path }) => [path]))("nft-proxier %s --help has the plain form", async (path) => {
    await main([...path.split(" ").filter((word) => word !== ""), "--help"]);
    expect(printed.out.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(printed.out).toMatch(/\nExamples:\n(  # [A-Z].+\n  .*nft-proxier.*\n)+$/);
    const [command] = outline.filter((one) => one.path === path);
    const texts = [command.description, ...shownFlags(command).map(describeFlag)];
    expect(texts.filter((text) => /^(of|what|who|that|those|such|so) /i.test(text))).toEqual([]);
  });

  it.each([
    [["run", "--manifest", directory, "--once"], "Did you mean --manifests?"],
    [["run", "--manifests", ".", "--onec"], "Did you mean --once?"],
    [["rnu"], "Did you mean run?"],
    [["run", "--manifests", ".", "--flowtable", "a/b"], "interface names"],
    [["run", "--manifests", ".", "--flowtable", "eth0", "--once"], "cannot be used with"],
    [["run", "--manifests", ".", "--conntrack-gc-interval", "9s"], "must be 0, or from 10s to 24h"],
    [["run", "--manifests", ".", "--conntrack-gc-interval", "often"], "must be a duration such as"],
    [["handover", "--for", "0"], "from 1s to 24h"],
    [["handover", "--for", "soon"], "from 1s to 24h"],
    [["handover", "--for", "10m", "--remove"], "'--remove' cannot be used with option '--for <duration>'"],
    [["run"], "--manifests <dir>"],
    [["validate"], "--manifests <dir>"],
    [["validate", "--manifests", ".", "--output", "xml"], "text, json"],
    [["run", "--manifests"], "argument missing"],
    [["render", "--manifests", ".", "--family", "ipv4"], "must be one of ip, ip6"],
    [["run", "--manifests", ".", "extra"], "too many arguments"],
    [["completion", "tcsh"], "must be one of bash, zsh, fish"],
    [["services", "-wA", "-n", "default"], "cannot be used with"],
    [["status", "--watch=perhaps"], "must be true or false"],
    [["explain", "10.96.0.300:80"], "10.96.0.300:80 is not an address and port"],
    [["cleanup", "--log-level", "loud"], "must be one of trace, debug"],
    [[], "Usage"],
  ])("%j is invalid and exits with 2", async (argv, words) => {
    expect(await main(argv.filter((word) => word !== undefined))).toBe(2);
    expect(printed.err).toContain(words);
  });

  it("a missing directory is named, and exits with 1", async () => {
    expect(await main(["render", "--manifests", join(directory, "nowhere")])).toBe(1);
    expect(printed.err).toContain(join(directory, "nowhere"));
    expect(printed.err).not.toContain("    at ");
  });

  it("all errors of a configuration are reported at once, and exit with 1", async () => {
    const config = join(directory, "config.yaml");
    await writeFile(
      config,
      "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ebpf\nnftables: {masqueradeBit: 40}\n",
    );
    expect(await main(["render", "--manifests", directory, "--config", config])).toBe(1);
    for (const word of [config, "mode", "nftables.masqueradeBit"]) expect(printed.err).toContain(word);
  });

  it("an empty directory is rendered in both families, or in one", async () => {
    expect(await main(["render", "--manifests", directory])).toBe(0);
    expect(printed.out).toContain("table ip kube-proxy {");
    expect(printed.out).toContain("table ip6 kube-proxy {");
    printed.out = "";
    expect(await main(["render", "--manifests", directory, "--family", "ip6"])).toBe(0);
    expect(printed.out).not.toContain("table ip kube-proxy {");
    expect(printed.out).toContain("table ip6 kube-proxy {");
  });
});
