/**
 * Checks which of the required kernel modules are available. This runs before any request to nf_tables, because a
 * request makes the kernel load modules from disk, and a check must change nothing.
 */
import { readdir, readFile } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import { counted } from "../../base/counted.js";
import { named, note, ok, problem, type Said } from "./finding.js";

/** on disk: would be loaded at its first use. unknown: not loaded, and the list of modules is not visible. */
type ModuleState = "loaded" | "built in" | "on disk" | "missing" | "unknown";

export interface ModuleFacts {
  /** False if this kernel has no modules or does not load more, so that requests load nothing. */
  readonly loads: boolean;
  readonly states: ReadonlyMap<string, ModuleState>;
}

const NF_TABLES = "nf_tables";
/**
 * Modules for the rules of services, by the expression or chain type that each provides (net/netfilter,
 * net/ipv4/netfilter, net/ipv6/netfilter).
 */
const FOR_RULES: readonly string[] = [
  NF_TABLES,
  "nf_conntrack",
  "nf_nat",
  "nft_chain_nat",
  "nft_ct",
  "nft_nat",
  "nft_masq",
  "nft_numgen",
  "nft_fib_ipv4",
  "nft_reject_ipv4",
];
const FOR_IPV6: readonly string[] = ["nft_fib_ipv6", "nft_reject_ipv6"];
const NETLINK = "nf_conntrack_netlink";

/** Directories of modules in distributions and in `kubectl debug node`, which mounts the node's root at /host. */
const DIRECTORIES = ["lib/modules", "usr/lib/modules", "host/lib/modules", "host/usr/lib/modules"];

/** Never throws. Modules that cannot be read about count as unknown. */
export async function readModules(ipv6: boolean, root = "/", kernelRelease = release()): Promise<ModuleFacts> {
  const names = [...FOR_RULES, ...(ipv6 ? FOR_IPV6 : []), NETLINK];
  const read = (file: string): Promise<string | undefined> => readFile(join(root, file), "utf8").catch(() => undefined);
  const loaded = await read("proc/modules");
  const disabled = (await read("proc/sys/kernel/modules_disabled"))?.trim() === "1";
  const inSys = new Set(await readdir(join(root, "sys/module")).catch(() => []));
  const lists = await Promise.all(
    DIRECTORIES.map(async (directory) => ({
      builtIn: await read(`${directory}/${kernelRelease}/modules.builtin`),
      dependencies: await read(`${directory}/${kernelRelease}/modules.dep`),
    })),
  );
  const builtIn = lists.map((list) => list.builtIn ?? "").join("\n");
  const onDisk = lists.map(({ dependencies }) => dependencies ?? "").join("\n");
  const listed = lists.some((list) => list.builtIn !== undefined && list.dependencies !== undefined);
  const isLoaded = (name: string): boolean => inSys.has(name) || new RegExp(`^${name} `, "m").test(loaded ?? "");
  const stateOf = (name: string): ModuleState => {
    if (isLoaded(name)) return "loaded";
    if (fileOf(name, "$").test(builtIn)) return "built in";
    if (fileOf(name, "(?:\\.(?:gz|xz|zst))?:").test(onDisk)) return "on disk";
    return listed ? "missing" : "unknown";
  };
  return { loads: loaded !== undefined && !disabled, states: new Map(names.map((name) => [name, stateOf(name)])) };
}

/** Module files may have hyphens where names have underscores. */
function fileOf(name: string, end: string): RegExp {
  return new RegExp(`/${name.replaceAll("_", "[_-]")}\\.ko${end}`, "m");
}

/** Whether a request about the kernel's tables loads nothing. */
export function mayRead({ loads, states }: ModuleFacts): boolean {
  return !loads || isThere(states.get(NF_TABLES));
}

/** Whether the rules can be tried without loading anything. */
export function mayTry({ loads, states }: ModuleFacts): boolean {
  return !loads || [...states].every(([name, state]) => name === NETLINK || isThere(state));
}

const isThere = (state: ModuleState | undefined): boolean => state === "loaded" || state === "built in";

export function checkModules(facts: ModuleFacts): Said[] {
  const { loads, states } = facts;
  const having = (wanted: ModuleState): string[] =>
    [...states].flatMap(([name, state]) => (state === wanted ? name : []));
  if (!loads) return [ok("this kernel loads no modules, so the rules are tried with the features that it has")];
  const missing = having("missing");
  const said: Said[] = [];
  if (missing.length > 0) {
    const rules = missing.filter((name) => name !== NETLINK);
    const remedy =
      "install the distribution's extra kernel modules (linux-modules-extra-… or kernel-modules-…), or use another kernel";
    if (rules.length > 0)
      said.push(
        problem(
          `the kernel lacks ${counted(rules.length, "module")} that the rules need, and would refuse them: ${rules.join(", ")}`,
          remedy,
        ),
      );
    if (missing.includes(NETLINK)) {
      said.push(
        note(`the kernel lacks the module ${NETLINK}, so connections to removed endpoints are not deleted`, remedy),
      );
    }
  }
  const onDisk = having("on disk");
  if (onDisk.length > 0) said.push(ok(`the kernel will load these modules at the first write: ${named(onDisk, 20)}`));
  const unknown = having("unknown");
  if (unknown.length > 0) {
    const where = "mount /lib/modules, or run `nft-proxier preflight` on the node itself";
    said.push(note(`these modules are not loaded, and it is unknown whether they exist: ${named(unknown, 20)}`, where));
  }
  return said.length > 0 ? said : [ok("all required modules are loaded or built in")];
}
