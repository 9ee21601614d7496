/** Chains in the tables of the older iptables, made without its tools. */
import { fileURLToPath } from "node:url";

import { run } from "./namespace.ts";

const SCRIPT = fileURLToPath(new URL("legacy-chains.py", import.meta.url));
/** What the script ends with where the kernel has no such iptables. */
const NO_LEGACY = 3;

/**
 * Adds empty chains to a table. False where this kernel does not have the older iptables any more.
 * `prefix` is the command that enters the namespace.
 */
export async function addLegacyChains(
  prefix: readonly string[],
  family: "ip" | "ip6",
  table: string,
  chains: readonly string[],
): Promise<boolean> {
  const [program, ...args] = [...prefix, "python3", SCRIPT, family, table, ...chains];
  const { code, stderr } = await run(program, args);
  if (code !== 0 && code !== NO_LEGACY) throw new Error(`${SCRIPT}: exit ${code}: ${stderr.trim()}`);
  return code === 0;
}
