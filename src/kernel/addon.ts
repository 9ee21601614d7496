/**
 * Loads the C++ addon. Nothing else in the program knows where it lies.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { reasonOf } from "../base/unknown.js";
import type { NativeConntrackAddon } from "./conntrack-addon.js";
import { KernelError } from "./errors.js";
import type { NativeNftAddon } from "./nft-addon.js";

/** All that the addon can do. */
export type NativeAddon = NativeNftAddon & NativeConntrackAddon;

/** A path in the package, from src/kernel as from dist/kernel. */
const inPackage = (name: string): string => fileURLToPath(new URL(`../../${name}`, import.meta.url));

/** Where the build puts it. */
const BUILT = inPackage("build/Release/nft_proxier.node");

/** The build on this machine; where there is none, the one for such machines in the published package. */
function findAddon(): string {
  if (existsSync(BUILT)) return BUILT;
  const prebuilt = inPackage(`prebuilds/${platformName()}/nft_proxier.node`);
  return existsSync(prebuilt) ? prebuilt : BUILT;
}

/** "linux-x64-glibc", as deploy/package/prebuild.ts names platforms. */
function platformName(): string {
  // Else a report looks up names of network addresses.
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header: { glibcVersionRuntime?: string } };
  return `linux-${process.arch}-${header.glibcVersionRuntime === undefined ? "musl" : "glibc"}`;
}

/** Says why a load failed, and what to do. */
function explain(path: string, error: unknown): string {
  const reason = reasonOf(error);
  const isCheckout = existsSync(inPackage("deploy/bootstrap.mjs"));
  const build = isCheckout ? "run `npm run build` in the package's directory" : "run `npm rebuild nft-proxier`";
  // A build that is there and seems up to date is not made again.
  const rebuild = isCheckout ? `remove build/, and ${build}` : build;
  if (!existsSync(path)) {
    return `${path} is not there, and no prebuilt addon for ${platformName()}: ${build} (needs a C++ compiler, make, python3, libnftnl-dev and libmnl-dev)`;
  }
  const library = /(lib(?:nftnl|mnl)\.so[.\d]*)/.exec(reason);
  if (library !== null) {
    return `${library[1]} is missing: run \`apt-get install libnftnl11 libmnl0\``;
  }
  if (/NODE_MODULE_VERSION|invalid ELF header|wrong ELF class|Exec format/.test(reason)) {
    return `${path} was built for another Node or machine (this is Node ${process.version}, ${process.arch}): ${rebuild}`;
  }
  return `${path}: ${reason}; ${rebuild}`;
}

const loaded = new Map<string, NativeAddon>();

/**
 * The addon, loaded on first use. `NFT_PROXIER_ADDON` names another build of it (one with sanitizers, say).
 * Throws KernelError "addon" that says what is missing and which command helps.
 */
export function loadAddon(path: string = process.env["NFT_PROXIER_ADDON"] ?? findAddon()): NativeAddon {
  const before = loaded.get(path);
  if (before !== undefined) return before;
  if (process.platform !== "linux") {
    throw new KernelError("addon", `nf_tables is a part of Linux; this is ${process.platform}`, {
      action: "load addon",
    });
  }
  try {
    const addon = createRequire(import.meta.url)(path) as NativeAddon;
    loaded.set(path, addon);
    return addon;
  } catch (cause) {
    throw new KernelError("addon", explain(path, cause), { action: "load addon", cause });
  }
}
