/**
 * Builds deploy/Dockerfile with buildah, for one platform, from committed files. Needs root, the npm registry and Debian's archive.
 *
 * Registries of images may be out of reach. Tests and dry runs then use stand-ins for both base images, made here from Debian's packages.
 * One is Debian with a compiler and the pinned Node; the other has only certificates. The cache directory keeps them for all checkouts.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import path from "node:path";
import { mirror, mustRun } from "../../test/lab/debian.ts";

const checkout = path.resolve(import.meta.dirname, "../..");

export type Platform = "linux/amd64" | "linux/arm64";
export const PLATFORMS: readonly Platform[] = ["linux/amd64", "linux/arm64"];
export const NATIVE: Platform = process.arch === "arm64" ? "linux/arm64" : "linux/amd64";

export interface ImageConfig {
  readonly User: string;
  readonly Entrypoint: readonly string[];
  readonly Env: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
}

const cache = path.join(process.env["XDG_CACHE_HOME"] ?? path.join(homedir(), ".cache"), "nft-proxier", "images");
const STORAGE = [
  "--storage-driver=vfs",
  `--root=${path.join(cache, "storage")}`,
  `--runroot=${path.join(cache, "run")}`,
];
/** What `node:*-bookworm` has and the build needs. */
const PACKAGES = ["g++", "make", "python3-minimal", "libpython3-stdlib", "ca-certificates"];

/** Returns a command line of buildah that uses our own storage. */
export function buildahCommand(...args: readonly string[]): readonly string[] {
  return ["buildah", ...STORAGE, ...args];
}

export function buildah(...args: readonly string[]): string {
  return mustRun("buildah", [...STORAGE, ...args]).trim();
}

/** Runs a long command with its output in a log file. Throws with the last lines of the log unless it exits with 0. */
async function logged(name: string, command: string, args: readonly string[], cwd = checkout): Promise<void> {
  const logs = path.join(checkout, "build", "image-logs");
  mkdirSync(logs, { recursive: true });
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
  writeFileSync(path.join(logs, `${name.replaceAll(/\W+/g, "-")}.log`), log.join(""));
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

/** Base images that deploy/Dockerfile names without a digest, so that a later build may start from other images. */
export function unpinnedBases(): readonly string[] {
  return [...globalArguments()]
    .filter(([name, image]) => name.endsWith("_IMAGE") && !/@sha256:[0-9a-f]{64}$/.test(image))
    .map(([, image]) => image);
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
    cpSync(path.join(node, "LICENSE"), path.join(local, "LICENSE"));
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

/** Names of the base images in the registries, by the Dockerfile's arguments. */
function basesInRegistries(): Readonly<Record<string, string>> {
  const { NODE_IMAGE: node = "", BASE_IMAGE: base = "" } = Object.fromEntries(globalArguments());
  return { NODE_IMAGE: `docker.io/library/${node}`, BASE_IMAGE: base };
}

/** Makes the stand-ins, unless they exist. */
async function standIns(): Promise<Readonly<Record<string, string>>> {
  mkdirSync(cache, { recursive: true });
  // Raise the number when the stand-in changes, because caches keep it.
  const node = `localhost/${globalArguments().get("NODE_IMAGE")?.split("@")[0]}-2`;
  const base = "localhost/nft-proxier-base:1";
  if (!has(node)) await makeNodeImage(node);
  if (!has(base)) await makeStaticImage(base);
  return { NODE_IMAGE: node, BASE_IMAGE: base };
}

/** Returns why buildah does not work on this machine, or undefined if it does. */
export function whyNoBuildah(): string | undefined {
  if (process.getuid?.() !== 0) return "buildah needs root here";
  const { error } = spawnSync("buildah", ["--version"]);
  return error === undefined ? undefined : `buildah does not run: ${error.message}`;
}

/** Returns why programs of the platform do not run on this machine, or undefined if they do. */
export function whyNotEmulated(platform: Platform): string | undefined {
  const emulator = `/proc/sys/fs/binfmt_misc/qemu-${platform === "linux/arm64" ? "aarch64" : "x86_64"}`;
  if (platform === NATIVE || existsSync(emulator)) return undefined;
  return `this machine runs only ${NATIVE} programs (there is no ${emulator})`;
}

/** Returns why the base images cannot be pulled, or undefined if they can. */
export function whyNoBases(platform: Platform): string | undefined {
  mkdirSync(cache, { recursive: true });
  for (const image of Object.values(basesInRegistries())) {
    const command = ["pull", "--quiet", "--policy=always", `--platform=${platform}`, image];
    const { status, stderr } = spawnSync("buildah", [...STORAGE, ...command], { encoding: "utf8" });
    if (status !== 0) return `cannot pull ${image}: ${stderr.trim().split("\n").at(-1)}`;
  }
  return undefined;
}

/** Builds the committed files of a directory. The image gets the name `tag` in our storage, and its files get the commit's time. */
export async function buildImage(options: {
  readonly from: string;
  readonly revision: string;
  readonly tag: string;
  readonly platform?: Platform;
  readonly bases: "registries" | "stand-ins";
}): Promise<void> {
  const { from, revision, tag, platform = NATIVE, bases } = options;
  removeBuilt();
  const inRegistries = bases === "registries";
  const images = inRegistries ? basesInRegistries() : await standIns();
  const seconds = mustRun("git", ["show", "--no-patch", "--format=%ct", revision], { cwd: from }).trim();
  const values = Object.entries({ ...images, REVISION: revision, SOURCE_DATE_EPOCH: seconds }).map(
    ([name, value]) => `--build-arg=${name}=${value}`,
  );
  const pull = inRegistries ? "--pull=always" : "--pull=never";
  const words = ["bud", "--isolation=chroot", pull, `--timestamp=${seconds}`, `--platform=${platform}`, ...values];
  const args = ["-f", "deploy/Dockerfile", "-t", tag, "."];
  await logged(`Dockerfile ${platform}`, "buildah", [...STORAGE, ...words, ...args], from);
}

/** Properties of an image in our storage. */
export function inspectImage(image: string): { readonly architecture: string; readonly config: ImageConfig } {
  return (JSON.parse(buildah("inspect", "--type", "image", image)) as { OCIv1: ReturnType<typeof inspectImage> }).OCIv1;
}

/** Calls `use` with the image's root directory. */
export function withFiles<T>(image: string, use: (root: string) => T): T {
  const container = buildah("from", "--pull-never", image);
  try {
    return use(buildah("mount", container));
  } finally {
    buildah("rm", container);
  }
}

/** Calls `use` with an image from a file, as our storage names it. */
export function withArchive<T>(file: string, use: (image: string) => T): T {
  const image = buildah("pull", "--quiet", `oci-archive:${file}`);
  try {
    return use(image);
  } finally {
    buildah("rmi", "--force", image);
  }
}

/** Removes images and containers of earlier builds. */
export function removeBuilt(): void {
  for (const line of buildah("containers", "--format", "{{.ContainerID}}").split("\n")) {
    if (line !== "") buildah("rm", line);
  }
  for (const line of buildah("images", "--all", "--format", "{{.ID}} {{.Name}}").split("\n")) {
    const [id = "", name = ""] = line.split(/\s+/);
    if (/nft-proxier-(test|release)$/.test(name) || name === "<none>") buildah("rmi", "--force", id);
  }
}
