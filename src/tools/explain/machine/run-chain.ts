/**
 * nf_tables' register machine (net/netfilter/nf_tables_core.c, nft_do_chain) for one packet. It runs the rules that the
 * kernel dumped, ours and others', so an explanation cannot differ from the rules. If part of a rule cannot be
 * evaluated from outside, the packet's path forks: the rule matches in one branch and not in the other. Branches with
 * the same result are joined again.
 */
import type { TableRef } from "../../../netlink/kernel.js";
import { type Branch, guessed, merged, type Step } from "./branch.js";
import { type EndedBy, type HookedChain, pointName } from "./hooks.js";
import type { RuleEnd, World } from "./machine-world.js";
import { actorOf, type Place, placeText } from "./rule-context.js";
import { runRule } from "./rule-run.js";

/** The end of a packet's path at a hook. */
export type Final =
  | { readonly branch: Branch; readonly verdict: "drop" | "reject"; readonly by: EndedBy }
  | { readonly branch: Branch; readonly verdict: "unknown"; readonly by?: EndedBy };

export interface ChainEnds {
  /** Branches that continue to the next base chain. */
  readonly passed: readonly Branch[];
  readonly finals: readonly Final[];
}

/** Maximum depth of nested jumps, NFT_JUMP_STACK_SIZE. */
const MAX_DEPTH = 16;
/** Maximum number of branches to follow. */
const MOST_BRANCHES = 64;

/** Runs one base chain. Rejects with KernelError if it cannot be read. */
export async function runChain(
  world: World,
  { ref, chain, base, point }: HookedChain,
  branches: readonly Branch[],
): Promise<ChainEnds> {
  const hook = pointName(point);
  const run = new ChainRun(world, hook, ref);
  const through = await run.chain(chain, branches, 0);
  const { accepted, finals } = run;
  if (base.policy !== "drop") return { passed: merged([...accepted, ...through]), finals };
  const by: EndedBy = { hook, ref, chain };
  const step: Step = { hook, table: `${ref.family} ${ref.table}`, chain, text: "dropped by the chain's policy" };
  const dropped = through.map((branch): Final => {
    return { branch: { ...branch, steps: [...branch.steps, step] }, verdict: "drop", by };
  });
  return { passed: merged(accepted), finals: [...finals, ...dropped] };
}

class ChainRun {
  readonly accepted: Branch[] = [];
  readonly finals: Final[] = [];
  readonly #world: World;
  readonly #hook: string;
  readonly #ref: TableRef;

  constructor(world: World, hook: string, ref: TableRef) {
    this.#world = world;
    this.#hook = hook;
    this.#ref = ref;
  }

  /** Returns the branches that reached the end of the chain, or returned. */
  async chain(chain: string, branches: readonly Branch[], depth: number): Promise<readonly Branch[]> {
    if (depth > MAX_DEPTH) throw new Error(`chain ${chain}: jumps nest too deep`);
    const returned: Branch[] = [];
    let here: readonly Branch[] = branches;
    for (const rule of await this.#world.rules.rules(this.#ref, chain)) {
      if (here.length === 0) break;
      const place: Place = { hook: this.#hook, ref: this.#ref, chain, rule };
      const next: Branch[] = [];
      for (const branch of here) {
        for (const end of await runRule(this.#world, place, branch)) {
          const { effect } = end;
          if (typeof effect === "object" && "chain" in effect) {
            const through = await this.chain(effect.chain, [end.branch], depth + 1);
            (effect.verdict === "goto" ? returned : next).push(...through);
          } else this.#settle(end, place, next, returned);
        }
      }
      here = this.#few(merged(next), place);
    }
    return merged([...here, ...returned]);
  }

  #settle({ branch, effect }: RuleEnd, place: Place, next: Branch[], returned: Branch[]): void {
    const verdict = typeof effect === "object" ? effect.verdict : effect;
    if (verdict === "accept") this.accepted.push(branch);
    else if (verdict === "return") returned.push(branch);
    // A program decides.
    else if (verdict === "queue") this.#end(branch, "unknown", place);
    else if (verdict === "drop" || verdict === "reject" || verdict === "unknown") this.#end(branch, verdict, place);
    else next.push(branch);
  }

  #end(branch: Branch, verdict: Final["verdict"], place: Place): void {
    this.finals.push({ branch, verdict, by: actorOf(place, this.#world) });
  }

  /** If there are too many branches, only the first continues. An unknown end stands for the others. */
  #few(branches: readonly Branch[], place: Place): readonly Branch[] {
    const [first] = branches;
    if (first === undefined || branches.length <= MOST_BRANCHES) return branches;
    const what = `${placeText(place, this.#world)}: too many rules have an unknown result`;
    this.#end(guessed(first, what, "yes"), "unknown", place);
    return [guessed(first, what, "no")];
  }
}
