/**
 * A guest's file system: programs for its processor (the pinned Node, iproute2, nft, util-linux, BusyBox), the image's files, and this built
 * checkout, all in one initramfs. There is no disk: the kernel unpacks everything into memory.
 */
import { statSync } from "node:fs";
import path from "node:path";
import { root } from "../checks.ts";
import { type Binaries, MERGED } from "./binaries.ts";
import { copyTree, CpioWriter } from "./cpio.ts";
import type { UnpackedKernel } from "./debian-kernels.ts";

/** Directory of the checkout in the guest. */
const GUEST_ROOT = "repo";

/** Parts of the checkout. */
const CHECKOUT = [
  "deploy",
  "dist",
  "src",
  "test",
  "native",
  "docs",
  "README.md",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "vitest.config.ts",
];

/** Packages that build, lint or describe, which no test loads; and in all packages, files that only compilers and people read. */
const NOT_LOADED =
  /^node_modules\/(typescript|@typescript|prettier|oxlint|oxlint-tsgolint|@oxlint|@oxlint-tsgolint|node-gyp|@types|\.cache|\.vite|\.vitest|node-linux-[^/]*\/(include|share|lib))(\/|$)/;
const NOT_READ = /\.(d\.[cm]?ts|map|md|flow)$/;

/**
 * The kernel calls this when it needs a module. One at a time: BusyBox considers a module loaded while another process is still loading it,
 * and the kernel would not find it.
 */
const MODPROBE = `#!/bin/busybox sh
exec flock /tmp/lock /bin/busybox modprobe "$@"
`;

/** Adds the files of the image (deploy/Dockerfile). The guest makes the startup snapshot, because V8 makes it only for its own processor. */
function writeImage(archive: CpioWriter, { addons, launcher, architecture }: Binaries, program: string): void {
  const home = "opt/nft-proxier";
  copyTree(archive, program, home);
  copyTree(archive, path.join(addons, "nft_proxier.node"), `${home}/build/Release/nft_proxier.node`);
  archive.directory(`${home}/cache`);
  const node = `node-linux-${architecture === "amd64" ? "x64" : architecture}`;
  archive.link("usr/local/bin/node", `/${GUEST_ROOT}/node_modules/${node}/bin/node`);
  for (const name of ["kube-proxy", "nft-proxier"]) {
    archive.link(`${home}/bin/${name}`, "../dist/main.js");
    copyTree(archive, launcher, `usr/local/bin/${name}`);
  }
}

/** Writes the part that all kernels of a processor share. The checkout must be built; `program` is the output of deploy/image/bundle.mjs. */
export function writeUserland(file: string, binaries: Binaries, program: string): void {
  const archive = new CpioWriter(file);
  for (const name of ["dev", "proc", "sys", "run", "tmp", "root", "var", "etc"]) archive.directory(name);
  for (const name of MERGED) {
    archive.directory(`usr/${name}`);
    archive.link(name, `usr/${name}`);
  }
  archive.file("etc/passwd", Buffer.from("root:x:0:0:root:/root:/bin/sh\n"));
  archive.file("etc/group", Buffer.from("root:x:0:\n"));
  archive.file("etc/hosts", Buffer.from("127.0.0.1 localhost\n::1 localhost\n"));
  archive.file("etc/nsswitch.conf", Buffer.from("hosts: files\n"));
  archive.copy("usr/bin/busybox", binaries.busybox, statSync(binaries.busybox));
  // Not BusyBox's: its shell runs its own setpriv, ip and so on instead of the real ones, wherever those are.
  archive.link("usr/bin/sh", "bash");
  archive.file("usr/sbin/modprobe", Buffer.from(MODPROBE), { executable: true });
  binaries.addTools(archive);
  const init = path.join(import.meta.dirname, "init.sh");
  archive.copy("init", init, { ...statSync(init), mode: 0o755 });

  for (const name of CHECKOUT) copyTree(archive, path.join(root, name), `${GUEST_ROOT}/${name}`);
  for (const name of ["nft_proxier.node", "nft_proxier_test.node"]) {
    copyTree(archive, path.join(binaries.addons, name), `${GUEST_ROOT}/build/Release/${name}`);
  }
  copyTree(archive, binaries.lab, `${GUEST_ROOT}/build/lab`);
  copyTree(archive, binaries.packages, `${GUEST_ROOT}/node_modules`, (to) => {
    const inside = to.slice(GUEST_ROOT.length + 1);
    return NOT_LOADED.test(inside) || NOT_READ.test(inside);
  });
  writeImage(archive, binaries, program);
  archive.close();
}

/** Writes a kernel's own part: its modules, except those in `without`, and the guest's job (init.sh reads it). */
export function writeJob(
  file: string,
  kernel: UnpackedKernel,
  job: Readonly<Record<string, string>>,
  without: readonly string[] = [],
): void {
  const archive = new CpioWriter(file);
  const leaveOut = (to: string): boolean => without.includes(path.basename(to, ".ko"));
  if (kernel.modules !== undefined) copyTree(archive, kernel.modules, `usr/lib/modules/${kernel.release}`, leaveOut);
  const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const lines = Object.entries(job).map(([name, value]) => `${name}=${quote(value)}\n`);
  archive.file("job", Buffer.from(lines.join("")));
  archive.close();
}
