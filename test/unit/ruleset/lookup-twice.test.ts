import { expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Expr } from "../../../src/nft/kernel/kernel.js";
import { makeProxier } from "../proxier/support/proxier.js";

const jumpsTo = (exprs: readonly Expr[]): string | undefined => {
  const [only, ...rest] = exprs;
  if (only.type !== "immediate" || rest.length > 0 || !("verdict" in only.data)) return undefined;
  return only.data.verdict === "jump" ? only.data.chain : undefined;
};

// test/packets/replace.test.ts shows the reason, on kernels that need it.
it.each(["nat-prerouting", "nat-output"])(
  "a first packet in %s looks up its service a second time if necessary",
  async (chain) => {
    const kernel = new FakeKernel();
    const proxier = makeProxier(kernel, { families: ["ip", "ip6"] });
    proxier.synced();
    await proxier.sync();
    for (const family of ["ip", "ip6"] as const) {
      const rules = await kernel.rules({ family, table: "kube-proxy" }, chain);
      expect(rules.map(({ exprs }) => jumpsTo(exprs))).toEqual(["services", "services"]);
    }
  },
);
