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

/** Where the build puts it, from src/kernel as from dist/kernel. */
const BUILT = fileURLToPath(new URL("../../build/Release/nft_proxier.node", import.meta.url));

/** Says why a load failed, and what to do. */
function explain(path: string, error: unknown): string {
  const reason = reasonOf(error);
  const build = "run `npm run build` in the package's directory";
  // A build that is there and seems up to date is not made again.
  const rebuild = `remove build/, and ${build}`;
  if (!existsSync(path)) {
    return `${path} is not there: ${build} (needs a C++ compiler, make, python3, libnftnl-dev and libmnl-dev)`;
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
export function loadAddon(path: string = process.env["NFT_PROXIER_ADDON"] ?? BUILT): NativeAddon {
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
