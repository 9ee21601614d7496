/** Hooks and priorities of the families of tables. */
import { ArpHook, BridgePriority, Hook, NetdevHook, Priority } from "../kernel/constants.js";
import type { BaseChain as KernelBaseChain, Family } from "../kernel/kernel.js";

const { ingress: _, ...OTHER_HOOKS } = Hook;

export type HookName = keyof typeof Hook | keyof typeof NetdevHook;
export type PriorityName = keyof typeof Priority | keyof typeof BridgePriority;

/** The hook that calls a chain. */
export interface BaseChain extends Omit<KernelBaseChain, "hook" | "priority"> {
  /** The valid hooks depend on the family: netdev has ingress and egress, arp has input and output, and inet also has ingress, for devices. */
  readonly hook: HookName | number;
  /** Lower ones come first. A name means nft's number for it in tables of the family. */
  readonly priority: PriorityName | number;
}

type Numbers<Name extends string> = Readonly<Partial<Record<Name, number>>>;

export function hooksOf(family: Family): Numbers<HookName> {
  if (family === "inet") return Hook;
  return family === "arp" ? ArpHook : family === "netdev" ? NetdevHook : OTHER_HOOKS;
}

/** Whether the hook belongs to devices, which a chain must name. */
export function isOfDevices(family: Family, hook: number): boolean {
  return family === "netdev" || (family === "inet" && hook === Hook.ingress);
}

export function prioritiesOf(family: Family): Numbers<PriorityName> {
  if (family === "bridge") return BridgePriority;
  return family === "arp" || family === "netdev" ? { filter: Priority.filter } : Priority;
}

/** Returns a checked base chain with the numbers of its hook and priority. */
export function kernelBaseOf({ hook, priority, ...rest }: BaseChain, family: Family): KernelBaseChain {
  return {
    ...rest,
    hook: typeof hook === "number" ? hook : hooksOf(family)[hook]!,
    priority: typeof priority === "number" ? priority : prioritiesOf(family)[priority]!,
  };
}

/** Describes the hook for comparisons and messages: by its name in the IP families, but on devices, which have other hooks, by its number. */
export function describeHook(base: KernelBaseChain | undefined): string {
  if (base === undefined) return "no hook";
  const { type, hook, priority, devices = [] } = base;
  const name = Object.entries(Hook).find(([, number]) => number === hook)?.[0] ?? hook;
  const where = devices.length === 0 ? name : `${hook} devices ${devices.toSorted().join(" ")}`;
  return `type ${type} hook ${where} priority ${priority}`;
}

export function policyOf(base: KernelBaseChain | undefined): string {
  return base?.policy ?? "accept";
}
