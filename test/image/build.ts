/**
 * Builds deploy/Dockerfile as it stands, from the committed files, with buildah. Needs root, the npm registry and Debian's archive, so it
 * runs outside the tests' namespaces:
 *
 *   node test/image/build.ts     writes build/image-test/
 *
 * Registries of images may be out of reach, so both base images are made here, under the names in the Dockerfile. One is Debian with a
 * compiler and the pinned Node; the other has only certificates. They are kept in the cache directory for all checkouts.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import path from "node:path";
import { mirror, mustRun } from "../lab/debian.ts";

const checkout = path.resolve(import.meta.dirname, "../..");
export const directory = path.join(checkout, "build", "image-test");
export const reportFile = path.join(directory, "report.json");

export interface Report {
  /** Reason why the image was not built; the other fields are then absent. */
  readonly skipped?: string;
  /** Directory with the image's files. */
  readonly root?: string;
  /** The image's configuration, as `buildah inspect` shows it. */
  readonly config?: ImageConfig;
  /** The built commit. */
  readonly revision?: string;
}

export interface ImageConfig {
  readonly User: string;
  readonly Entrypoint: readonly string[];
  readonly Env: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
}

const cache = path.join(process.env["XDG_CACHE_HOME"] ?? path.join(homedir(), ".cache"), "nft-proxier", "images");
const STORAGE = [
  "--storage-driver",
  "vfs",
  "--root",
  path.join(cache, "storage"),
  "--runroot",
  path.join(cache, "run"),
];
const TAG = `nft-proxier-test:${process.pid}`;
/** What `node:*-bookworm` has and the build needs. */
const PACKAGES = ["g++", "make", "python3-minimal", "libpython3-stdlib", "ca-certificates"];

function buildah(...args: readonly string[]): string {
  return mustRun("buildah", [...STORAGE, ...args]).trim();
}

/** Runs a long command with its output in a log file. Throws with the last lines of the log unless it exits with 0. */
async function logged(name: string, command: string, args: readonly string[], cwd = checkout): Promise<void> {
  const start = Date.now();
  const log: string[] = [];
  const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => log.push(chunk.toString()));
  const seconds = (): string => `${Math.round((Date.now() - start) / 1000)} s`;
  const alive = setInterval(() => {
    const step = /STEP \d+\/\d+: .{0,60}/.exec(
      log
        .join("")
        .split("\n")
        .findLast((line) => line.includes("STEP")) ?? "",
    );
    console.log(`image: ${name}, ${seconds()}${step === null ? "" : `: ${step[0]}`}`);
  }, 15_000);
  const [code] = (await once(child, "close")) as [number | null];
  clearInterval(alive);
  writeFileSync(path.join(directory, `${name.replaceAll(/\W+/g, "-")}.log`), log.join(""));
  const last = log
    .join("")
    .trimEnd()
    .split("\n")
    .slice(code === 0 ? -4 : -40);
  if (code !== 0) throw new Error(`${name}: ${command} ${args.join(" ")}: exit ${code}\n${last.join("\n")}`);
  console.log([`image: ${name}: done in ${seconds()}`, ...last.map((line) => `  ${line}`)].join("\n"));
}

/** The values of the Dockerfile's global ARGs. */
function globalArguments(): ReadonlyMap<string, string> {
  const text = readFileSync(path.join(checkout, "deploy/Dockerfile"), "utf8");
  return new Map([...text.matchAll(/^ARG (\w+)=(\S+)$/gm)].map(([, name = "", value = ""]) => [name, value]));
}

/** A value of npm's configuration on this machine, if it is set. */
function npmSetting(name: string): string | undefined {
  const value = mustRun("npm", ["config", "get", name], { cwd: tmpdir() }).trim();
  return value === "null" || value === "undefined" || value === "" ? undefined : value;
}

/** Debian with a compiler, the pinned Node and npm, and this machine's way to the npm registry. */
async function makeNodeImage(image: string): Promise<void> {
  const context = mkdtempSync(path.join(tmpdir(), "nft-proxier-image-"));
  try {
    const include = `--include=${PACKAGES.join(",")}`;
    const tar = path.join(context, "debian.tar");
    await logged("Debian base", "mmdebstrap", ["--variant=minbase", include, "bookworm", tar, mirror()]);
    const local = path.join(context, "local");
    const node = path.join(checkout, "node_modules", `node-linux-${process.arch}`);
    cpSync(path.join(node, "bin/node"), path.join(local, "bin/node"));
    cpSync(path.join(node, "include/node"), path.join(local, "include/node"), { recursive: true });
    const modules = path.join(local, "lib/node_modules");
    mkdirSync(modules, { recursive: true });
    mustRun("npm", ["pack", "npm@11"], { cwd: context });
    mustRun("sh", ["-c", `tar -xzf npm-*.tgz -C ${modules} && mv ${modules}/package ${modules}/npm`], { cwd: context });
    symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", path.join(local, "bin/npm"));
    mkdirSync(path.join(local, "etc"));
    const settings = [`registry=${npmSetting("registry")}`, "cafile=/usr/local/etc/authorities.crt"];
    writeFileSync(path.join(local, "etc/npmrc"), `${settings.join("\n")}\n`);
    const authorities = npmSetting("cafile") ?? "/etc/ssl/certs/ca-certificates.crt";
    cpSync(authorities, path.join(local, "etc/authorities.crt"), { dereference: true });
    const dockerfile = ["FROM scratch", "ADD debian.tar /", "COPY local /usr/local"];
    const PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    writeFileSync(path.join(context, "Dockerfile"), `${[...dockerfile, PATH].join("\n")}\n`);
    await logged("Node base", "buildah", [...STORAGE, "bud", "--isolation", "chroot", "-t", image, context]);
  } finally {
    rmSync(context, { recursive: true });
  }
}

/** Certificates, and root's name. */
async function makeStaticImage(image: string): Promise<void> {
  const context = mkdtempSync(path.join(tmpdir(), "nft-proxier-image-"));
  try {
    const etc = path.join(context, "etc");
    mkdirSync(path.join(etc, "ssl/certs"), { recursive: true });
    cpSync("/etc/ssl/certs/ca-certificates.crt", path.join(etc, "ssl/certs/ca-certificates.crt"), {
      dereference: true,
    });
    writeFileSync(path.join(etc, "passwd"), "root:x:0:0:root:/root:/sbin/nologin\n");
    writeFileSync(path.join(etc, "group"), "root:x:0:\n");
    writeFileSync(
      path.join(context, "Dockerfile"),
      "FROM scratch\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nCOPY etc /etc\n",
    );
    await logged("static base", "buildah", [...STORAGE, "bud", "--isolation", "chroot", "-t", image, context]);
  } finally {
    rmSync(context, { recursive: true });
  }
}

function has(image: string): boolean {
  return buildah("images", "--format", "{{.Name}}:{{.Tag}}", "--filter", `reference=${image}`) !== "";
}

/** Clones the commit to build, with changes of tracked files that are not committed yet. Returns the commit. */
function cloneTo(clone: string): string {
  const changed = mustRun("git", ["stash", "create"], { cwd: checkout }).trim();
  const commit = mustRun("git", ["rev-parse", "HEAD"], { cwd: checkout }).trim();
  mustRun("git", ["clone", "-q", "--no-checkout", checkout, clone]);
  if (changed !== "") {
    console.log("image: includes changes that are not committed");
    mustRun("git", ["fetch", "-q", checkout, changed], { cwd: clone });
  }
  mustRun("git", ["checkout", "-q", changed === "" ? commit : changed], { cwd: clone });
  return commit;
}

/** Removes images and containers of earlier builds. */
function removeBuilt(): void {
  for (const line of buildah("containers", "--format", "{{.ContainerID}}").split("\n")) {
    if (line !== "") buildah("rm", line);
  }
  for (const line of buildah("images", "--all", "--format", "{{.ID}} {{.Name}}").split("\n")) {
    const [id = "", name = ""] = line.split(" ");
    if (name.includes("nft-proxier-test") || name === "<none>") buildah("rmi", "--force", id);
  }
}

async function build(): Promise<Report> {
  if (process.getuid?.() !== 0) return { skipped: "buildah and runc need root here" };
  mkdirSync(cache, { recursive: true });
  const { NODE_IMAGE: node = "", BASE_IMAGE: base = "" } = Object.fromEntries(globalArguments());
  if (!has(node)) await makeNodeImage(node);
  if (!has(base)) await makeStaticImage(base);
  removeBuilt();
  const clone = path.join(directory, "clone");
  const revision = cloneTo(clone);
  // The command of deploy/README.md, with another program and without its images' registry.
  const words = ["bud", "--isolation", "chroot", "--pull-never", "-f", "deploy/Dockerfile"];
  const args = ["--build-arg", `REVISION=${revision}`, "-t", TAG, "."];
  await logged("Dockerfile", "buildah", [...STORAGE, ...words, ...args], clone);
  rmSync(clone, { recursive: true });
  const { config } = (JSON.parse(buildah("inspect", "--type", "image", TAG)) as { OCIv1: { config: ImageConfig } })
    .OCIv1;
  // A copy, so that a container can create its mount points there.
  const container = buildah("from", "--pull-never", TAG);
  const root = path.join(directory, "root");
  cpSync(buildah("mount", container), root, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
  removeBuilt();
  return { root, config, revision };
}

if (import.meta.main) {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  writeFileSync(reportFile, JSON.stringify(await build()));
}
