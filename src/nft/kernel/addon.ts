/**
 * Loads the C++ addon. Only this file knows the addon's path.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { reasonOf } from "../../base/unknown.js";
import type { NativeConntrackAddon } from "./conntrack-addon.js";
import { KernelError } from "./errors.js";
import type { NativeNftAddon } from "./nft-addon.js";

/** All functions of the addon. */
export type NativeAddon = NativeNftAddon & NativeConntrackAddon;

/** Returns this file's directory. In a bundle, it is the bundle's, or undefined in CommonJS, which has no `import.meta.url`. */
function ownDirectory(): string | undefined {
  const url = import.meta.url as string | undefined;
  return url === undefined || !url.startsWith("file:") ? undefined : path.dirname(fileURLToPath(url));
}

const BUILT = "build/Release/nft_proxier.node";

/**
 * Returns the package's directory, which is two or three folders up, from the image's chunks or from this file. Returns undefined in another
 * program's bundle.
 */
function packageDirectory(): string | undefined {
  const own = ownDirectory();
  if (own === undefined) return undefined;
  // The published package and a checkout have binding.gyp. The image has only the addon itself.
  const isPackage = (root: string): boolean => ["binding.gyp", BUILT].some((file) => existsSync(path.join(root, file)));
  return ["../..", "../../.."].map((up) => path.resolve(own, up)).find(isPackage);
}

/**
 * Returns the path of the addon built on this machine, or else of the prebuilt one for such machines, inside the package or
 * in the platform's own package.
 */
function findAddon(): string {
  const root = packageDirectory();
  if (root === undefined) throw new KernelError("addon", BUNDLED, { action: "load addon" });
  const built = path.join(root, BUILT);
  if (existsSync(built)) return built;
  const platform = platformName();
  const prebuilt = path.join(root, "prebuilds", platform, "nft_proxier.node");
  if (existsSync(prebuilt)) return prebuilt;
  try {
    return requireFrom(built).resolve(`@nft-proxier/nft-${platform}`);
  } catch {
    return built;
  }
}

/** Bundlers replace calls of an imported createRequire. And a bundle may not know its own path, so the addon's path is used. */
function requireFrom(file: string): NodeJS.Require {
  return process.getBuiltinModule("node:module").createRequire(file);
}

const BUNDLED =
  "the addon nft_proxier.node is not next to this code, because a bundler moved the code. Declare @nft-proxier/nft and @nft-proxier/nft/conntrack as external, " +
  "or set the environment variable NFT_PROXIER_ADDON to the addon's path in the installed package";

/** Returns the platform's name in deploy/package/prebuild.ts, such as "linux-x64-glibc". */
function platformName(): string {
  // Otherwise a report looks up names of network addresses.
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header: { glibcVersionRuntime?: string } };
  return `linux-${process.arch}-${header.glibcVersionRuntime === undefined ? "musl" : "glibc"}`;
}

/** Returns why a load failed, and what to do. */
function explain(addon: string, error: unknown): string {
  const reason = reasonOf(error);
  const root = packageDirectory();
  const isCheckout = root !== undefined && existsSync(path.join(root, "deploy/bootstrap.mjs"));
  const build = isCheckout ? "run `npm run build` in the package's directory" : "run `npm rebuild @nft-proxier/nft`";
  // An existing build that seems up to date is not built again.
  const rebuild = isCheckout ? `remove build/, and ${build}` : build;
  if (!existsSync(addon)) {
    const install = isCheckout
      ? ""
      : `install @nft-proxier/nft-${platformName()} in the same version if it exists, or `;
    const moved = isCheckout
      ? ""
      : " or, if a bundler has moved this code, declare @nft-proxier/nft as external or set NFT_PROXIER_ADDON";
    return `${addon} does not exist, and there is no prebuilt addon for ${platformName()}: ${install}${build} (needs a C++ compiler, make, python3, libnftnl-dev and libmnl-dev)${moved}`;
  }
  const library = /(lib(?:nftnl|mnl)\.so[.\d]*)/.exec(reason);
  if (library !== null) {
    return `${library[1]} is missing: run \`apt-get install libnftnl11 libmnl0\``;
  }
  if (/NODE_MODULE_VERSION|invalid ELF header|wrong ELF class|Exec format/.test(reason)) {
    return `${addon} was built for another Node version or machine (this is Node ${process.version}, ${process.arch}): ${rebuild}`;
  }
  return `${addon}: ${reason}; ${rebuild}`;
}

const loaded = new Map<string, NativeAddon>();

/**
 * Returns the addon, loaded on first use. `NFT_PROXIER_ADDON` is the path of another build (for example, with sanitizers).
 * Throws KernelError "addon", whose message names what is missing and the command that helps.
 */
export function loadAddon(given: string | undefined = process.env["NFT_PROXIER_ADDON"]): NativeAddon {
  if (process.platform !== "linux") {
    throw new KernelError("addon", `nf_tables exists only on Linux, and this is ${process.platform}`, {
      action: "load addon",
    });
  }
  const file = path.resolve(given ?? findAddon());
  const before = loaded.get(file);
  if (before !== undefined) return before;
  try {
    const addon = requireFrom(file)(file) as NativeAddon;
    loaded.set(file, addon);
    return addon;
  } catch (cause) {
    throw new KernelError("addon", explain(file, cause), { action: "load addon", cause });
  }
}
