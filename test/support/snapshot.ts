import { normalizeExpr } from "../../src/nft/kernel/normalize.js";
import { SetFlag } from "../../src/nft/kernel/constants.js";
import type { Kernel } from "../../src/nft/kernel/kernel.js";
import { unpack } from "./operations.ts";

/** All tables with their contents, in a comparable form: no handles, elements sorted. */
export async function snapshot(kernel: Kernel): Promise<unknown> {
  const tables = await kernel.tables();
  return Promise.all(
    tables.map(async ({ handle: _handle, ...table }) => {
      const chains = await kernel.chains(table);
      const rules = await kernel.rules(table);
      const sets = await kernel.sets(table);
      const objects = await kernel.objects(table);
      return {
        ...table,
        objects: objects.map((object) => ({ ...object, handle: undefined })),
        chains: chains.map(({ handle: _, ...chain }) => chain),
        rules: rules.map(({ handle: _, ...rule }) => ({ ...rule, exprs: rule.exprs.map(normalizeExpr) })),
        sets: await Promise.all(
          sets.map(async ({ handle: _, count, ...set }) => {
            const elements = unpack(await kernel.elements(table, set));
            for (const element of elements) delete element.expiration;
            // The kernel's set type determines how it counts intervals.
            const counted = count === undefined || (set.flags & SetFlag.interval) !== 0;
            const keys = elements.filter(({ key }) => key !== "*").length;
            return { ...set, elements, counted: counted || count === keys };
          }),
        ),
      };
    }),
  );
}
