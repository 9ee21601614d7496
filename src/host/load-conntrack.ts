import { CtKey, Hook, Priority } from "../kernel/constants.js";
import type { Kernel } from "../kernel/types.js";

/**
 * Makes the kernel load its connection tracker, whose sysctls are missing before: a rule that asks for the state of a
 * connection is checked, and rolled back. Throws KernelError.
 */
export async function loadConntrack(kernel: Kernel): Promise<void> {
  const ref = { family: "ip", table: "conntrack-probe" } as const;
  await kernel.commit(
    [
      { op: "add", kind: "table", ...ref },
      {
        op: "add",
        kind: "chain",
        ...ref,
        chain: "probe",
        base: { type: "filter", hook: Hook.output, priority: Priority.filter },
      },
      { op: "add", kind: "rule", ...ref, chain: "probe", exprs: [{ type: "ct", key: CtKey.state, dreg: 1 }] },
    ],
    { dryRun: true },
  );
}
