/** `npm run release`, as far as it needs no image: the chart, the manifests, the text of the release page, and the signature. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { packChart, packManifests } from "../../../deploy/release/archives.js";
import { notes } from "../../../deploy/release/version.js";
import { temporaryDirectory } from "../../support/temporary-directory.js";

const ROOT = path.join(import.meta.dirname, "../../..");
const { version } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8")) as { readonly version: string };

const run = (command: string, args: readonly string[], cwd?: string): string =>
  execFileSync(command, args, { encoding: "utf8", cwd });
const listed = (archive: string): readonly string[] => run("tar", ["-tzf", archive]).trim().split("\n");

test("the release page has the version's section of CHANGELOG.md, with links that work there", () => {
  const text =
    "# Changelog\n\n## Unreleased\n\n- later\n\n## 1.2.3 (2026-11-29)\n\n- [a](docs/a.md), [b](https://b.example)\n\n## 1.2.2\n";
  expect(notes(text, "1.2.3", "https://forge.example/p/blob/v1.2.3/")).toBe(
    "- [a](https://forge.example/p/blob/v1.2.3/docs/a.md), [b](https://b.example)\n",
  );
  expect(notes(text, "1.2.3")).toBe("- [a](docs/a.md), [b](https://b.example)\n");
});

test("two builds of the chart and of the manifests are the same bytes", () => {
  const directory = temporaryDirectory();
  for (const [name, pack] of [
    ["chart", packChart],
    ["manifests", packManifests],
  ] as const) {
    const [one, two] = [1, 2].map((n) => path.join(directory, `${n}`, `${name}.tgz`));
    run("mkdir", ["-p", path.dirname(one), path.dirname(two)]);
    pack(ROOT, one, 1_700_000_000);
    pack(ROOT, two, 1_700_000_000);
    expect(readFileSync(one).equals(readFileSync(two)), name).toBe(true);
    expect(run("tar", ["--utc", "-tvzf", one]).match(/ 0\/0 .*2023-11-14 22:13/g)).toHaveLength(listed(one).length);
  }
});

/** Where a release is made, there is git; signatures are optional. */
const has = (command: string, ...args: string[]): boolean => spawnSync(command, args).status === 0;
const HAS_GIT = has("git", "-C", ROOT, "rev-parse", "HEAD");
const HAS_SSH = has("sh", "-c", "command -v ssh-keygen");

describe.skipIf(!HAS_GIT)("npm run release -- --only chart", () => {
  const directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-release-"));
  const clone = path.join(directory, "clone");
  const key = path.join(directory, "key");
  const inRelease = (name: string): string => path.join(clone, "build/release", name);
  let output = "";

  beforeAll(() => {
    run("git", ["clone", "-q", "--depth=1", `file://${ROOT}`, clone]);
    if (HAS_SSH) run("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key]);
    const args = ["deploy/release/release.ts", "--only", "chart", ...(HAS_SSH ? ["--sign", key] : [])];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: clone, encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
    output = stdout;
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  test("makes the chart, the manifests, the text of the page and the sums", () => {
    const signature = HAS_SSH ? ["SHA256SUMS.sig"] : [];
    const names = ["SHA256SUMS", ...signature, "notes.md", `nft-proxier-${version}-manifests.tgz`];
    expect(readdirSync(path.join(clone, "build/release")).toSorted()).toEqual(
      [...names, `nft-proxier-${version}.tgz`].toSorted(),
    );
    const sums = run("sha256sum", ["-c", "SHA256SUMS"], path.join(clone, "build/release"));
    expect(sums).toBe(`nft-proxier-${version}-manifests.tgz: OK\nnft-proxier-${version}.tgz: OK\n`);
    expect(readFileSync(inRelease("notes.md"), "utf8")).toMatch(/^\S/);
  });

  test("the chart has everything that helm and its reader need", () => {
    const chart = listed(inRelease(`nft-proxier-${version}.tgz`));
    for (const name of ["Chart.yaml", "README.md", "values.yaml", "values.schema.json", "monitoring/alerts.yaml"])
      expect(chart).toContain(`nft-proxier/${name}`);
    expect(chart.filter((name) => !name.startsWith("nft-proxier/"))).toEqual([]);
  });

  test("the manifests have the paths that the kustomizations name", () => {
    const manifests = listed(inRelease(`nft-proxier-${version}-manifests.tgz`));
    for (const name of ["kubeadm/kustomization.yaml", "kubernetes/daemon-set.yaml", "preflight/job.yaml"])
      expect(manifests).toContain(`nft-proxier-${version}-manifests/${name}`);
  });

  test.skipIf(!HAS_SSH)("the signature of the sums is valid, and that of other sums is not", () => {
    const signers = path.join(directory, "signers");
    writeFileSync(signers, `release@example.org ${readFileSync(`${key}.pub`, "utf8")}`);
    const words = ["-Y", "verify", "-f", signers, "-I", "release@example.org", "-n", "file"];
    const verify = (input: string): number | null =>
      spawnSync("ssh-keygen", [...words, "-s", inRelease("SHA256SUMS.sig")], { input }).status;
    const sums = readFileSync(inRelease("SHA256SUMS"), "utf8");
    expect(verify(sums)).toBe(0);
    expect(verify(`${sums} `)).not.toBe(0);
  });

  test("says that base images without a digest stop a release, until pin.mjs has written the digests", () => {
    const names = [
      ...readFileSync(path.join(ROOT, "deploy/Dockerfile"), "utf8").matchAll(/^ARG \w+_IMAGE=([^@\s]+)$/gm),
    ];
    for (const [, image] of names) {
      expect(output).toContain(
        `skipped publishing v${version}: deploy/Dockerfile has the base image ${image} without a digest`,
      );
    }
    const file = path.join(clone, "deploy/Dockerfile");
    const pinned = readFileSync(file, "utf8").replaceAll(/^(ARG \w+_IMAGE=[^@\s]+)$/gm, `$1@sha256:${"0".repeat(64)}`);
    writeFileSync(file, pinned);
    run("git", ["-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-qam", "pin"], clone);
    const again = run(process.execPath, ["deploy/release/release.ts", "--only", "chart"], clone);
    expect(again).toContain("skipped the image: --only chart");
    expect(again).not.toContain("without a digest");
  });
});
