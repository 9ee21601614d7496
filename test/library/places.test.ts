/** Actions that the kernel accepts at some hooks only: refused when declared, exactly if the kernel refuses them. */
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type ChainSpec,
  FieldError,
  type Kernel,
  openKernel,
  printRule,
  type Statement,
  Table,
} from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;
beforeAll(async () => {
  namespace = await Namespace.create("places");
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});

const TCP: Statement = { field: "meta l4proto", value: "tcp" };
const ACTIONS: Readonly<Record<string, readonly Statement[]>> = {
  dnat: [{ action: "dnat", address: "192.0.2.1" }],
  snat: [{ action: "snat", address: "192.0.2.1" }],
  masquerade: [{ action: "masquerade" }],
  redirect: [{ action: "redirect" }],
  tproxy: [TCP, { action: "tproxy", port: 8080 }],
  synproxy: [TCP, { action: "synproxy", mss: 1460 }],
};
const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;

test("notrack is refused at hooks where packets have their connection already", () => {
  const table = new Table(kernel, { family: "inet", name: "places" });
  const accepted = ([...HOOKS, "ingress"] as const).filter((hook) => {
    const base = { type: "filter", hook, priority: -300, ...(hook === "ingress" && { devices: ["lo"] }) } as const;
    try {
      table.chain({ chain: "c", base, rules: [{ statements: [{ action: "notrack" }] }] });
      return true;
    } catch (error) {
      expect((error as Error).message).toBe(
        'chain c, rule 0, statement 0, action: expected an action of base chains at prerouting or output or ingress, found "notrack"',
      );
      return false;
    }
  });
  expect(accepted).toEqual(["prerouting", "output", "ingress"]);
});

test("if a chain leads to one at another hook, the error tells the reason", async () => {
  const table = new Table(kernel, { family: "ip", name: "places" });
  table.chain({ chain: "to", rules: [{ statements: ACTIONS.dnat }] });
  const statements = [{ action: "verdict", verdict: "jump to" }] as const;
  table.chain({ chain: "c", base: { type: "filter", hook: "input", priority: 0 }, rules: [{ statements }] });
  await expect(table.apply()).rejects.toThrow(
    "chain c, rule 0: EOPNOTSUPP, an action of it, or of a chain that it leads to, does not work at this hook or with this kernel",
  );
});

test.each(Object.entries(ACTIONS))(
  "%s is refused with its place where the kernel refuses it",
  async (name, statements) => {
    const [ours, kernels]: string[][] = [[], []];
    for (const type of ["filter", "nat"] as const)
      for (const hook of HOOKS) {
        if (type === "nat" && hook === "forward") continue;
        const spec: ChainSpec = { chain: "c", base: { type, hook, priority: 0 }, rules: [{ statements }] };
        const table = new Table(kernel, { family: "ip", name: "places" });
        try {
          table.chain(spec);
          ours.push(`${type} ${hook}`);
          await table.apply();
        } catch (error) {
          if (!(error instanceof FieldError)) throw error;
          expect(error.message).toMatch(
            `chain c, rule 0, statement ${statements.length - 1}, action: expected an action of`,
          );
        }
        await table.destroy();
        const text = `table ip places { chain c { type ${type} hook ${hook} priority 0; ${printRule({ statements }, { family: "ip" })}; }; }`;
        const { code } = await namespace.run(["nft", text]);
        if (code === 0) kernels.push(`${type} ${hook}`);
      }
    expect(kernels).not.toEqual([]);
    expect(ours, name).toEqual(kernels);
  },
);
