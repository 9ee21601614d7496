/**
 * `npm install @nft-proxier/nft` runs this. It does nothing if a prebuilt addon loads. Otherwise it compiles the addon,
 * which needs a C++ compiler, make, python3 and the headers of libnftnl and libmnl. With `--ignore-scripts` nothing is
 * compiled, but the prebuilt addon is used all the same.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");

function libc() {
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime === undefined ? "musl" : "glibc";
}

/** Returns why the prebuilt addon does not work here, or undefined if it does. It is found as in src/nft/kernel/addon.ts. */
function whyNotPrebuilt() {
  const platform = `linux-${process.arch}-${libc()}`;
  const require = createRequire(import.meta.url);
  const inside = path.join(root, "prebuilds", platform, "nft_proxier.node");
  try {
    require(existsSync(inside) ? inside : `@nft-proxier/nft-${platform}`);
    return undefined;
  } catch (error) {
    return error.code === "MODULE_NOT_FOUND"
      ? `there is no prebuilt addon for ${platform}`
      : `the prebuilt addon for ${platform} does not load: ${error.message}`;
  }
}

function compile() {
  const gyp = process.env.npm_config_node_gyp;
  const [command, args] = gyp === undefined ? ["node-gyp", []] : [process.execPath, [gyp]];
  return spawnSync(command, [...args, "rebuild"], { cwd: root, stdio: "inherit" }).status === 0;
}

function fail(reason) {
  console.error(`@nft-proxier/nft: ${reason}.`);
  process.exit(1);
}

if (process.platform !== "linux") fail(`nf_tables exists only on Linux, and this is ${process.platform}`);
const reason = whyNotPrebuilt();
if (reason !== undefined) {
  console.error(`@nft-proxier/nft: ${reason}; compiling it`);
  if (!compile()) {
    fail(
      `${reason}, and it could not be compiled (see above). It needs a C++17 compiler, make, python3 and the development files of ` +
        "libnftnl and libmnl.\n  Debian, Ubuntu: apt-get install g++ make python3 libnftnl-dev libmnl-dev" +
        "\n  Alpine:         apk add g++ make python3 linux-headers libnftnl-dev libmnl-dev" +
        "\n  Fedora:         dnf install gcc-c++ make python3 libnftnl-devel libmnl-devel\nThen: npm rebuild @nft-proxier/nft",
    );
  }
}
