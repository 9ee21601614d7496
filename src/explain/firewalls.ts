/**
 * Whether other programs' rules drop packets to services: their base chains, run on the packet of a pod that calls one. What a table of
 * ours accepts, another table may still drop.
 */
import { Hook, Priority, TableFlag } from "../kernel/constants.js";
import type { ChainInfo, Kernel, TableRef } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import { Machine, type World } from "./machine.js";
import { initialState, type PacketSpec } from "./packet.js";
import { Ruleset } from "./ruleset.js";

/** A service's packet before and after its translation. */
export interface SamplePacket {
  readonly packet: PacketSpec;
  readonly endpoint: { readonly address: string; readonly port: number };
}

/** A base chain of another program that such a packet does not pass. */
export interface DroppingChain {
  readonly family: TableRef["family"];
  readonly table: string;
  readonly chain: string;
  /** "forward". */
  readonly hook: string;
  readonly verdict: "drop" | "reject";
  /** Rules that could not be judged from outside: one of them may let the packet pass. */
  readonly unjudged: readonly string[];
}

const HOOKS = [
  [Hook.prerouting, "prerouting"],
  [Hook.forward, "forward"],
  [Hook.postrouting, "postrouting"],
] as const;

/** A table with more rules is not judged: reading them would take longer than an answer may. */
const MOST_RULES = 2000;

/**
 * Rejects with KernelError when the ruleset cannot be read.
 * @param ours name of the tables that are not another program's: they may hold more chains than a look-around may read.
 */
export async function droppingChains(
  kernel: Kernel,
  { packet, endpoint }: SamplePacket,
  ours: string,
): Promise<DroppingChain[]> {
  const ruleset = new Ruleset(kernel, packet.family);
  const found: DroppingChain[] = [];
  for (const { ref, info } of await foreignBaseChains(kernel, packet.family, ours)) {
    const { base, chain } = info;
    const hook = HOOKS.find(([number]) => number === base?.hook);
    if (base === undefined || hook === undefined || base.type === "nat") continue;
    const unjudged: string[] = [];
    const state = initialState(packet);
    if (base.hook !== Hook.prerouting || base.priority > Priority.dstnat) {
      Object.assign(state, { destination: endpoint.address, destinationPort: endpoint.port, translated: true });
    }
    const verdict = await new Machine(packet, state, worldOf(ruleset, unjudged)).run({ ref, chain, base });
    if (verdict === "accept") continue;
    const { family, table } = ref;
    found.push({ family, table, chain, hook: hook[1], verdict, unjudged });
  }
  return found;
}

async function foreignBaseChains(
  kernel: Kernel,
  family: IpFamily,
  ours: string,
): Promise<readonly { readonly ref: TableRef; readonly info: ChainInfo }[]> {
  const tables = (await kernel.tables()).filter(
    (each) =>
      (each.family === "inet" || each.family === family) &&
      each.table !== ours &&
      (each.flags & TableFlag.dormant) === 0,
  );
  const found: { ref: TableRef; info: ChainInfo }[] = [];
  for (const { family: of, table } of tables) {
    const ref = { family: of, table };
    const chains = await kernel.chains(ref);
    // A chain's `use` counts its rules and what leads to it.
    if (chains.reduce((sum, { use }) => sum + use, 0) > MOST_RULES) continue;
    for (const info of chains) if (info.base !== undefined) found.push({ ref, info });
  }
  return found;
}

function worldOf(ruleset: Ruleset, unjudged: string[]): World {
  return {
    ruleset,
    localAddresses: new Set(),
    interfacesUnknown: true,
    draw: 0,
    onDraw: () => undefined,
    onStep: () => undefined,
    onUnknown: (what) => void unjudged.push(what),
  };
}
