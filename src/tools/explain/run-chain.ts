/**
 * nf_tables' register machine (net/netfilter/nf_tables_core.c, nft_do_chain) for one packet. It runs the rules that the
 * kernel dumped, ours and others', so an explanation cannot differ from the rules. If part of a rule cannot be
 * evaluated from outside, the packet's path forks: the rule matches in one branch and not in the other. Branches with
 * the same result are joined again.
 */
import type { TableRef } from "../../netlink/kernel.js";
import { type Branch, guessed, merged, type Step } from "./branch.js";
import { RuleRun } from "./rule-run.js";
import { ruleText } from "./rule-text.js";
import { type HookedChain, pointName } from "./ruleset.js";
import { type Place, type RuleEnd, whereOf, type World } from "./world.js";

/** The end of a packet's path at a hook. */
export type Final =
  | { readonly branch: Branch; readonly verdict: "drop" | "reject"; readonly by: EndedBy }
  | { readonly branch: Branch; readonly verdict: "unknown"; readonly by?: EndedBy };

/** The rule or policy that ended a packet's path. */
export interface EndedBy {
  /** "forward". */
  readonly hook: string;
  readonly ref: TableRef;
  /** The rule's chain. For a policy, the base chain. */
  readonly chain: string;
  /** "tcp dport 80 drop (handle 3)". Absent if the chain's policy decided. */
  readonly rule?: string;
}

/** "inet a f: tcp dport 80 drop (handle 3)". */
export function endText({ ref, chain, rule }: EndedBy): string {
  return rule === undefined
    ? `the policy of ${ref.family} ${ref.table} ${chain}`
    : `${ref.family} ${ref.table} ${chain}: ${rule}`;
}

export interface ChainEnds {
  /** Branches that continue to the next base chain. */
  readonly passed: readonly Branch[];
  readonly finals: readonly Final[];
}

/** Maximum depth of nested jumps, NFT_JUMP_STACK_SIZE. */
const MAX_DEPTH = 16;
/** Maximum number of branches to follow. */
const MOST_BRANCHES = 64;

interface Ends {
  /** Branches that reached the end of the chain, or returned. */
  readonly through: readonly Branch[];
  readonly accepted: readonly Branch[];
  readonly finals: readonly Final[];
}

/** Runs one base chain. Rejects with KernelError if it cannot be read. */
export async function runChain(
  world: World,
  { ref, chain, base, point }: HookedChain,
  branches: readonly Branch[],
): Promise<ChainEnds> {
  const hook = pointName(point);
  const { through, accepted, finals } = await new ChainRun(world, hook, ref).run(chain, branches, 0);
  if (base.policy !== "drop") return { passed: merged([...accepted, ...through]), finals };
  const by: EndedBy = { hook, ref, chain };
  const text = "dropped by the chain's policy";
  const dropped = through.map((branch): Final => {
    const step: Step = { hook, table: `${ref.family} ${ref.table}`, chain, text };
    return { branch: { ...branch, steps: [...branch.steps, step] }, verdict: "drop", by };
  });
  return { passed: merged(accepted), finals: [...finals, ...dropped] };
}

class ChainRun {
  readonly #world: World;
  readonly #hook: string;
  readonly #ref: TableRef;

  constructor(world: World, hook: string, ref: TableRef) {
    this.#world = world;
    this.#hook = hook;
    this.#ref = ref;
  }

  async run(chain: string, branches: readonly Branch[], depth: number): Promise<Ends> {
    if (depth > MAX_DEPTH) throw new Error(`chain ${chain}: jumps nest too deep`);
    const accepted: Branch[] = [];
    const finals: Final[] = [];
    const returned: Branch[] = [];
    let here: readonly Branch[] = branches;
    for (const rule of await this.#world.ruleset.rules(this.#ref, chain)) {
      if (here.length === 0) break;
      const place: Place = { hook: this.#hook, ref: this.#ref, chain, rule };
      const next: Branch[] = [];
      for (const branch of here) {
        for (const end of await new RuleRun(this.#world, place, branch).run()) {
          if (typeof end.effect === "object" && "chain" in end.effect) {
            const { verdict, chain: to } = end.effect;
            const ends = await this.run(to, [end.branch], depth + 1);
            accepted.push(...ends.accepted);
            finals.push(...ends.finals);
            (verdict === "goto" ? returned : next).push(...ends.through);
            continue;
          }
          this.#settle(end, place, { next, returned, accepted, finals });
        }
      }
      here = this.#few(merged(next), place, finals);
    }
    return { through: merged([...here, ...returned]), accepted: merged(accepted), finals };
  }

  #settle(
    { branch, effect }: RuleEnd,
    place: Place,
    { next, returned, accepted, finals }: Record<"next" | "returned" | "accepted", Branch[]> & { finals: Final[] },
  ): void {
    const end = (verdict: Final["verdict"]): void => void finals.push({ branch, verdict, by: endedBy(place) });
    if (effect === "next" || effect === "break") next.push(branch);
    else if (effect === "reject" || effect === "unknown") end(effect);
    else if (effect.verdict === "accept") accepted.push(branch);
    else if (effect.verdict === "drop") end("drop");
    else if (effect.verdict === "return") returned.push(branch);
    // A program decides.
    else if (effect.verdict === "queue") end("unknown");
    else next.push(branch);
  }

  /** If there are too many branches, only the first continues. An unknown end stands for the others. */
  #few(branches: readonly Branch[], place: Place, finals: Final[]): readonly Branch[] {
    if (branches.length <= MOST_BRANCHES) return branches;
    const [first] = branches;
    if (first === undefined) return [];
    const what = `${whereOf(place)}: too many rules have an unknown result`;
    finals.push({ branch: guessed(first, what, "yes"), verdict: "unknown", by: endedBy(place) });
    return [guessed(first, what, "no")];
  }
}

function endedBy({ hook, ref, chain, rule }: Place): EndedBy {
  return { hook, ref, chain, rule: ruleText(rule) };
}
