/**
 * nft of other Debian releases, next to the machine's: each suite's nftables package with all its dependencies,
 * including libc and dynamic loader, unpacked under build/nft/.
 */
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { unpacked } from "../lab/debian.ts";

/** A suite of Debian's archive. `version` is its nftables version, if the suite is old enough not to change. */
export interface Suite {
  readonly name: string;
  readonly version?: string;
}

/** The oldest nft in use, those of later stable releases, and the newest one. */
export const suites: readonly Suite[] = [
  { name: "bullseye", version: "0.9.8" },
  { name: "bookworm", version: "1.0.6" },
  { name: "trixie", version: "1.1.3" },
  { name: "sid" },
];

const cache = path.resolve(import.meta.dirname, "..", "..", "build", "nft");

/** Downloads and unpacks a suite's nft unless that was done recently. Needs the network; throws with apt's message. */
export function fetchNft(suite: Suite): void {
  unpacked(path.join(cache, suite.name), suite.name, "nftables", (archive) =>
    archive.downloadWithDependencies("nftables"),
  );
}

/**
 * Returns the command line that runs a fetched nft with its own loader and libraries, whatever the machine's libc is.
 */
export function nftCommand(suite: Suite): readonly string[] {
  const root = path.join(cache, suite.name, "root");
  const triplet = process.arch === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
  const directories = [`lib/${triplet}`, `usr/lib/${triplet}`].map((directory) => path.join(root, directory));
  const loader = directories
    .filter((directory) => existsSync(directory))
    .flatMap((directory) => readdirSync(directory).map((name) => path.join(directory, name)))
    .find((file) => /\/ld-linux-.*\.so\.\d+$/.test(file));
  const nft = path.join(root, "usr/sbin/nft");
  if (loader === undefined || !existsSync(nft)) throw new Error(`the nft of ${suite.name} is not unpacked`);
  return [loader, "--library-path", directories.join(":"), nft];
}
