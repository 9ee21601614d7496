/** Verdict maps whose chains come and go: an element goes to its desired chain, and the table forgets deleted chains. */
import { expect, it } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { Table } from "../../../src/nft/engine-exports.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";
import { drop, OWN, rule } from "../../conformance/table/build.js";
import { Dice } from "../../support/dice.ts";

const MAPS = ["m", "n"];
const ELEMENTS = 8;

/** The desired state, kept beside the table. */
class Wants {
  /** The chain of each element of each map. */
  readonly #goes = new Map<string, string>();
  #serial = 0;

  constructor(
    readonly dice: Dice,
    readonly table: Table,
  ) {
    for (const set of MAPS) table.packedSet(specOf(set));
  }

  /** Some elements are added, removed, or sent elsewhere: to a new chain, an existing one, or a former one. */
  change(): void {
    for (let i = this.dice.below(6); i >= 0; i--) {
      const element = `${this.dice.pick(MAPS)} ${this.dice.below(ELEMENTS)}`;
      const back = Math.max(0, this.#serial - 1 - this.dice.below(12));
      const chain = `c${this.dice.chance(40) ? this.#serial++ : back}`;
      const former = this.#goes.get(element);
      if (this.dice.chance(30)) this.#goes.delete(element);
      else {
        this.table.chain({ chain, rules: [rule(drop)] });
        this.#goes.set(element, chain);
      }
      this.#tell(element, this.table);
      if (former !== undefined && ![...this.#goes.values()].includes(former)) this.table.removeChain(former);
    }
  }

  /** Declares the same state in another table. */
  repeat(table: Table): void {
    for (const set of MAPS) table.packedSet(specOf(set));
    for (const chain of new Set(this.#goes.values())) table.chain({ chain, rules: [rule(drop)] });
    for (const element of this.#goes.keys()) this.#tell(element, table);
  }

  #tell(element: string, table: Table): void {
    const [set, last] = element.split(" ");
    const key = Uint8Array.of(10, 0, 0, Number(last));
    const chain = this.#goes.get(element);
    if (chain === undefined) table.packedSet(specOf(set)).delete(key);
    else {
      const id = table.verdictId({ verdict: "goto", chain });
      table.packedSet(specOf(set)).put(key, new Uint8Array(Uint32Array.of(id).buffer));
    }
  }
}

const specOf = (set: string): SetSpec => ({ set, key: ["ipv4_addr"], data: "verdict" });
const own = (kernel: FakeKernel): Table => new Table(kernel, { family: OWN.family, name: OWN.table });

it.each([1, 2, 3, 4])("verdicts stay right through random changes and failures (seed %i)", async (seed) => {
  const kernel = new FakeKernel();
  const dice = new Dice(seed);
  const table = own(kernel);
  const wants = new Wants(dice, table);
  for (let round = 0; round < 150; round++) {
    wants.change();
    if (dice.chance(20))
      kernel.failNext({ when: (op) => op.kind === "elements" || op.kind === "chain", errno: "ENOMEM" });
    if (dice.chance(10)) kernel.loseReply();
    if (dice.chance(10)) table.invalidate("test");
    await table.apply().catch(() => undefined);
    if (round % 3 !== 0) continue;
    await table.apply().catch(() => table.apply());
    const again = own(kernel);
    wants.repeat(again);
    expect(await again.apply(), `round ${round}`).toMatchObject({ transactions: 0 });
  }
  // Each of some hundreds of chains had its own number.
  expect(table.verdictId({ verdict: "goto", chain: "one more" })).toBeLessThan(80);
});

it("a number is valid as long as its chain is desired, whether anything refers to it or not", async () => {
  const table = own(new FakeKernel());
  const map = table.packedSet(specOf("m"));
  table.chain({ chain: "a", rules: [] });
  await table.apply();
  const id = table.verdictId({ verdict: "goto", chain: "a" });
  table.chain({ chain: "a", rules: [rule(drop)] });
  await table.apply();
  table.chain({ chain: "b", rules: [] });
  expect(table.verdictId({ verdict: "goto", chain: "b" })).not.toBe(id);
  map.put(Uint8Array.of(10, 0, 0, 1), new Uint8Array(Uint32Array.of(id).buffer));
  await table.apply();
  expect(table.render()).toContain("10.0.0.1 : goto a");
});

it("an element may only refer to a desired chain, however often it is tried", async () => {
  const table = own(new FakeKernel());
  const id = table.verdictId({ verdict: "goto", chain: "nowhere" });
  table.packedSet(specOf("m")).put(Uint8Array.of(10, 0, 0, 1), new Uint8Array(Uint32Array.of(id).buffer));
  const refusal = { code: "invalid", faulty: [{ kind: "chain", chain: "nowhere" }] };
  for (let i = 0; i < 2; i++) await expect(table.apply()).rejects.toMatchObject(refusal);
  table.chain({ chain: "nowhere", rules: [] });
  expect((await table.apply()).transactions).toBe(1);
});

it("a map whose keys change releases its elements, and the chains that they referred to may be removed", async () => {
  const table = own(new FakeKernel());
  table.chain({ chain: "a", rules: [] });
  const id = table.verdictId({ verdict: "goto", chain: "a" });
  table.packedSet(specOf("m")).put(Uint8Array.of(10, 0, 0, 1), new Uint8Array(Uint32Array.of(id).buffer));
  await table.apply();
  expect(table.packedSet({ ...specOf("m"), key: ["ipv4_addr", "inet_service"] }).size).toBe(0);
  table.removeChain("a");
  expect((await table.apply()).transactions).toBe(1);
});
