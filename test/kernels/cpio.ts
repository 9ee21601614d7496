/** Archives that Linux unpacks as its first root file system: cpio in the "newc" format, several in a row. */
import { closeSync, lstatSync, openSync, readdirSync, readFileSync, readlinkSync, writeSync } from "node:fs";
import path from "node:path";

const S_IFDIR = 0o040000;
const S_IFREG = 0o100000;
const S_IFLNK = 0o120000;

/** Writes one archive. Everything belongs to root. Paths have no leading slash; directories are created as needed. */
export class CpioWriter {
  readonly #file: number;
  readonly #written = new Set<string>();
  #inode = 0;

  constructor(file: string) {
    this.#file = openSync(file, "w");
  }

  directory(path: string): void {
    if (path === "" || path === "." || this.#written.has(path)) return;
    this.#parent(path);
    this.#entry(path, S_IFDIR | 0o755, Buffer.alloc(0));
  }

  /** `mtime` in seconds since 1970. A path that was already written is not replaced. */
  file(path: string, content: Buffer, { executable = false, mtime = 0 } = {}): void {
    if (this.#written.has(path)) return;
    this.#parent(path);
    this.#entry(path, S_IFREG | (executable ? 0o755 : 0o644), content, mtime);
  }

  /** Like `file`, with the content, time and executable bits of a file of this machine. */
  copy(path: string, from: string, stat: { readonly mode: number; readonly mtimeMs: number }): void {
    if (this.#written.has(path)) return;
    this.file(path, readFileSync(from), {
      executable: (stat.mode & 0o111) !== 0,
      mtime: Math.floor(stat.mtimeMs / 1000),
    });
  }

  link(path: string, target: string): void {
    if (this.#written.has(path)) return;
    this.#parent(path);
    this.#entry(path, S_IFLNK | 0o777, Buffer.from(target));
  }

  close(): void {
    this.#entry("TRAILER!!!", 0, Buffer.alloc(0));
    closeSync(this.#file);
  }

  #parent(path: string): void {
    const end = path.lastIndexOf("/");
    if (end > 0) this.directory(path.slice(0, end));
  }

  #entry(path: string, mode: number, content: Buffer, mtime = 0): void {
    this.#written.add(path);
    const name = Buffer.from(`${path}\0`);
    // inode, mode, uid, gid, links, mtime, size, device of the file (2) and of a device node (2), name, checksum (unused).
    const fields = [++this.#inode, mode, 0, 0, 1, mtime, content.length, 0, 0, 0, 0, name.length, 0];
    const head = Buffer.from(`070701${fields.map((field) => field.toString(16).padStart(8, "0")).join("")}`);
    const beforeContent = Buffer.concat([head, name, padding(head.length + name.length)]);
    for (const part of [beforeContent, content, padding(content.length)]) this.#write(part);
  }

  #write(bytes: Buffer): void {
    for (let done = 0; done < bytes.length;) done += writeSync(this.#file, bytes, done);
  }
}

/** Adds a file, or a directory with everything below it, to the archive, unless `leaveOut` excludes it. */
export function copyTree(
  archive: CpioWriter,
  from: string,
  to: string,
  leaveOut = (_file: string): boolean => false,
): void {
  const stat = lstatSync(from);
  if (leaveOut(to)) return;
  if (stat.isSymbolicLink()) archive.link(to, readlinkSync(from));
  else if (stat.isDirectory()) {
    archive.directory(to);
    for (const name of readdirSync(from)) copyTree(archive, path.join(from, name), `${to}/${name}`, leaveOut);
  } else if (stat.isFile()) archive.copy(to, from, stat);
}

function padding(length: number): Buffer {
  return Buffer.alloc((4 - (length % 4)) % 4);
}
