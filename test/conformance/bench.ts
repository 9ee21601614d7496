/** What a test of the suite works with. */
import { FakeKernel } from "../../src/kernel/fake-kernel.js";
import { normalizeExpr } from "../../src/kernel/normalize.js";
import type { Kernel } from "../../src/kernel/types.js";
import { unpack } from "./build.js";

export interface Bench {
  readonly kernel: Kernel;
  /** Another socket in the same namespace, closed with the bench. */
  other(): Promise<Kernel>;
  /** Lets time pass for the kernel. */
  wait(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** Opens an empty kernel for one test. */
export type Open = () => Promise<Bench>;

export const openFake: Open = () => {
  let now = 1_000;
  const kernel = new FakeKernel({ now: () => now });
  const others: FakeKernel[] = [];
  return Promise.resolve({
    kernel,
    other: () => {
      const other = kernel.asOther();
      others.push(other);
      return Promise.resolve(other);
    },
    wait: (ms) => {
      now += ms;
      return Promise.resolve();
    },
    close: async () => {
      for (const open of [...others, kernel]) await open.close();
    },
  });
};

/** All tables with everything in them, in a form that can be compared: no handles, elements sorted. */
export async function snapshot(kernel: Kernel): Promise<unknown> {
  const tables = await kernel.tables();
  return Promise.all(
    tables.map(async ({ handle: _handle, ...table }) => {
      const chains = await kernel.chains(table);
      const rules = await kernel.rules(table);
      const sets = await kernel.sets(table);
      return {
        ...table,
        chains: chains.map(({ handle: _, ...chain }) => chain),
        rules: rules.map(({ handle: _, ...rule }) => ({ ...rule, exprs: rule.exprs.map(normalizeExpr) })),
        sets: await Promise.all(
          sets.map(async ({ handle: _, ...set }) => {
            const elements = unpack(await kernel.elements(table, set));
            for (const element of elements) delete element.expiration;
            return { ...set, elements };
          }),
        ),
      };
    }),
  );
}
