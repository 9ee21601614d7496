/** Debian's kernels for clouds, unpacked under build/kernels/: the image, and the modules that the tests may need. */
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";
import { type Archive, mustRun, unpacked } from "../lab/debian.ts";

/** Directory of the kernels and their guests' files. */
export const kernelCache = path.resolve(import.meta.dirname, "..", "..", "build", "kernels");

/** A release of Debian and its line of kernels. */
export interface DebianKernel {
  readonly suite: string;
  /** The user's name for it; "newest" is always the newest one. */
  readonly name: string;
  /** How a guest runs unless emulation is requested: in User Mode Linux, which is far faster, if that is known to work. */
  readonly machine: Machine;
}

export type Machine = "uml" | "qemu";

/** Debian's name of the guest's processor. */
export type Architecture = "amd64" | "arm64";

export const debianKernels: readonly DebianKernel[] = [
  { suite: "bullseye", name: "5.10", machine: "uml" },
  { suite: "bookworm", name: "6.1", machine: "uml" },
  { suite: "trixie", name: "6.12", machine: "uml" },
  { suite: "sid", name: "newest", machine: "uml" },
];

export interface UnpackedKernel {
  readonly machine: Machine;
  readonly architecture: Architecture;
  /** The release in the form of `uname -r`. */
  readonly release: string;
  /** A program, or for qemu the image that a boot loader loads. */
  readonly image: string;
  /** Contents of /lib/modules/RELEASE: uncompressed modules and their index. Absent if the kernel has everything built in. */
  readonly modules?: string;
}

/** Parts of the module tree that contain network namespaces, links, nf_tables, connection tracking and SCTP. */
const MODULES = [
  ...["kernel/net", "kernel/lib", "kernel/crypto", "kernel/arch/x86/crypto", "kernel/arch/arm64/crypto"],
  ...["kernel/drivers/net/veth", "kernel/drivers/net/dummy"],
];

/** Returns BusyBox, statically linked: the guest's init and small commands; this machine's own also indexes and unpacks modules here. */
export function busybox(architecture?: Architecture): string {
  const directory = path.join(kernelCache, ["busybox", architecture].filter((part) => part !== undefined).join("-"));
  const download = (archive: Archive): void => archive.download(["busybox-static"]);
  const root = unpacked(directory, "bookworm", "busybox", download, architecture);
  const found = ["bin/busybox", "usr/bin/busybox"]
    .map((name) => path.join(root, name))
    .find((file) => existsSync(file));
  if (found === undefined) throw new Error(`no busybox in ${root}`);
  return found;
}

/** The packages of the meta package: one, or (since 7.x) one each for image, modules and lists. */
function packagesOf(archive: Archive, architecture: Architecture): readonly string[] {
  const found = new Set<string>();
  const wanted = new RegExp(String.raw`^linux-(image|binary|modules|base)-\d.*-cloud-${architecture}$`);
  const visit = (name: string): void => {
    for (const dependency of archive.dependencies(name)) {
      if (!wanted.test(dependency) || found.has(dependency)) continue;
      found.add(dependency);
      visit(dependency);
    }
  };
  visit(`linux-image-cloud-${architecture}`);
  return [...found];
}

/** Downloads and unpacks a release's kernel unless that was done recently. Needs the network; throws with apt's message. */
export function fetchKernel(kernel: DebianKernel, architecture: Architecture): UnpackedKernel {
  const directory = path.join(kernelCache, `${kernel.suite}-${architecture}`);
  const download = (archive: Archive): void => archive.download(packagesOf(archive, architecture));
  const root = unpacked(directory, kernel.suite, "the kernel", download, architecture);
  const tree = ["usr/lib/modules", "lib/modules"].map((name) => path.join(root, name)).find((name) => existsSync(name));
  const release = tree === undefined ? undefined : readdirSync(tree)[0];
  if (tree === undefined || release === undefined) throw new Error(`the kernel of ${kernel.suite} has no modules`);
  const image = [path.join(root, "boot", `vmlinuz-${release}`), path.join(tree, release, "vmlinuz")].find((file) =>
    existsSync(file),
  );
  if (image === undefined) throw new Error(`the kernel of ${kernel.suite} has no image`);
  const modules = prepareModules(path.join(tree, release), path.join(directory, "prepared"), release);
  return { machine: "qemu", architecture, release, image, modules };
}

function filesUnder(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(directory, path.join(entry.parentPath, entry.name)));
}

/** Copies, unpacks and indexes the modules: loading is then fast, and the guest needs only BusyBox's modprobe. */
function prepareModules(from: string, base: string, release: string): string {
  const to = path.join(base, "lib", "modules", release);
  rmSync(base, { recursive: true, force: true });
  const wanted = filesUnder(from).filter(
    (file) => /^modules\.(builtin|order)/.test(file) || MODULES.some((start) => file.startsWith(start)),
  );
  for (const file of wanted) {
    mkdirSync(path.dirname(path.join(to, file)), { recursive: true });
    copyFileSync(path.join(from, file), path.join(to, file));
  }
  const packed = wanted.filter((file) => file.endsWith(".xz"));
  if (packed.length > 0) mustRun(busybox(), ["unxz", ...packed], { cwd: to });
  const unknown = filesUnder(to).find((file) => /\.ko\../.test(file));
  if (unknown !== undefined) throw new Error(`modules have an unknown compression: ${unknown}`);
  mustRun(busybox(), ["depmod", "-b", base, release]);
  if (!existsSync(path.join(to, "modules.dep"))) throw new Error(`depmod wrote no index to ${to}`);
  return to;
}
