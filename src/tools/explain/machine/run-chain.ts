/**
 * nf_tables' register machine (net/netfilter/nf_tables_core.c, nft_do_chain) for one packet. It runs the rules that the
 * kernel dumped, ours and others', so an explanation cannot differ from the rules. If part of a rule cannot be
 * evaluated from outside, the packet's path forks: the rule matches in one branch and not in the other. Branches with
 * the same result are joined again.
 */
import { type Branch, guessed, merged, withStep } from "./branch.js";
import { evaluate } from "./expressions.js";
import { type EndedBy, endText, type HookedChain, pointName } from "./hooks.js";
import type { RuleEnd, World } from "./machine-world.js";
import { actorOf, type Place, RuleContext } from "./rule-context.js";

/** The end of a packet's path at a hook. */
export type Final =
  | { readonly branch: Branch; readonly verdict: "drop" | "reject"; readonly by: EndedBy }
  | { readonly branch: Branch; readonly verdict: "unknown"; readonly by?: EndedBy };

/** Maximum depth of nested jumps, NFT_JUMP_STACK_SIZE. */
const MAX_DEPTH = 16;
/** Maximum number of branches to follow. */
const MOST_BRANCHES = 64;

/**
 * Runs one base chain. Returns the branches that continue to the next one. Rejects with KernelError if a chain cannot be read.
 * @param finals receives the ends of the other branches.
 */
export async function runChain(
  world: World,
  { ref, chain: base, base: { policy }, point }: HookedChain,
  branches: readonly Branch[],
  finals: Final[],
): Promise<readonly Branch[]> {
  const hook = pointName(point);
  const accepted: Branch[] = [];
  /** Returns the branches that reached the end of the chain, or returned. */
  const run = async (chain: string, begin: readonly Branch[], depth: number): Promise<readonly Branch[]> => {
    if (depth > MAX_DEPTH) throw new Error(`chain ${chain}: jumps nest too deep`);
    const returned: Branch[] = [];
    let here = begin;
    for (const rule of await world.rules.rules(ref, chain)) {
      if (here.length === 0) break;
      const place: Place = { hook, ref, chain, rule };
      const next: Branch[] = [];
      const end = (branch: Branch, verdict: Final["verdict"]): unknown =>
        finals.push({ branch, verdict, by: actorOf(place, world) });
      for (const from of here) {
        for (const { branch, effect } of await runRule(world, place, from)) {
          const verdict = typeof effect === "object" ? effect.verdict : effect;
          if (typeof effect === "object" && "chain" in effect) {
            const through = await run(effect.chain, [branch], depth + 1);
            (verdict === "goto" ? returned : next).push(...through);
          } else if (verdict === "accept") accepted.push(branch);
          else if (verdict === "return") returned.push(branch);
          // A program decides.
          else if (verdict === "queue") end(branch, "unknown");
          else if (verdict === "drop" || verdict === "reject" || verdict === "unknown") end(branch, verdict);
          else next.push(branch);
        }
      }
      here = merged(next);
      const [first] = here;
      if (first === undefined || here.length <= MOST_BRANCHES) continue;
      // Only the first branch continues. An unknown end stands for the others.
      const what = `${endText(actorOf(place, world))}: too many rules have an unknown result`;
      end(guessed(first, what, "yes"), "unknown");
      here = [guessed(first, what, "no")];
    }
    return merged([...here, ...returned]);
  };
  const through = await run(base, branches, 0);
  if (policy !== "drop") return merged([...accepted, ...through]);
  const by: EndedBy = { hook, ref, chain: base };
  for (const branch of through)
    finals.push({ branch: withStep(branch, by, "dropped by the chain's policy"), verdict: "drop", by });
  return merged(accepted);
}

/** Runs one rule on one branch. Returns the branches at their ends; those in which the rule does not match come first. */
export async function runRule(world: World, place: Place, branch: Branch): Promise<readonly RuleEnd[]> {
  const rule = new RuleContext(world, place, branch);
  for (const expr of place.rule.exprs) {
    const done = await evaluate(expr, rule);
    if (done === "ended") return rule.ends;
    if (done === "maybe") rule.fork();
    const word = typeof done === "object" ? done.verdict : done;
    if (done === "maybe" || word === "next" || word === "continue") continue;
    if (word === "unknown") rule.branch = rule.guess("its effect on the packet");
    if (word === "queue") rule.branch = rule.guess("the decision of a program");
    if (word === "drop") rule.step(rule.isOurs ? "drop" : rule.ruleText);
    return [...rule.ends, { branch: rule.branch, effect: done }];
  }
  return [...rule.ends, { branch: rule.branch, effect: "next" }];
}
