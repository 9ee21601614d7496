/** The hooks of the devices and bridges that a packet passes on its way to and from the hooks of IP. */
import { Hook } from "../../netlink/constants.js";
import { unknownBits } from "./bits.js";
import { type Branch, changed, guessed, merged } from "./branch.js";
import type { PacketState } from "./packet.js";
import { bridgePoint, type HookedChain, Point, pointName, type Ruleset } from "./ruleset.js";
import type { Routing } from "./routing.js";

/** The parts of a way through the node. */
export interface Passage {
  readonly ruleset: Ruleset;
  readonly routing: Routing;
  /** Passes the chains at a point. @param device absent: chains there belong to no device. */
  through(
    point: number,
    branches: readonly Branch[],
    change?: (state: PacketState) => unknown,
    device?: string,
    isMet?: (chain: HookedChain) => boolean,
  ): Promise<readonly Branch[]>;
}

/** Rules see the interfaces of the place where they run. */
export function setInterfaces(
  state: PacketState,
  inInterface: string | undefined,
  outInterface: string | undefined,
): void {
  state.inInterface = inInterface;
  state.outInterface = outInterface;
}

/** @param device undefined: chains there belong to no device. */
export function isAt({ base }: HookedChain, device: string | undefined): boolean {
  return device === undefined || (base.devices ?? []).includes(device);
}

/** The packet arrives through a device, and through the port of a bridge before. */
export async function receive(
  passage: Passage,
  branches: readonly Branch[],
  device: string | undefined,
): Promise<readonly Branch[]> {
  return fromBridge(passage, await fromPort(passage, branches, device), device);
}

/** The packet arrives through the port of a bridge, if the device is one. */
export async function fromPort(
  passage: Passage,
  branches: readonly Branch[],
  device: string | undefined,
): Promise<readonly Branch[]> {
  const ports = device === undefined ? undefined : await passage.routing.portsOf(device);
  if (ports === undefined) return branches;
  const passed = await atDevice(passage, Point.ingress, branches, ports, (state, name) => {
    setInterfaces(state, name, "");
    // The bridge decides later whether the packet is for this node.
    state.packetType = unknownBits(1);
  });
  const type = branches[0]?.state.packetType;
  return type === undefined ? passed : changed(passed, (state) => (state.packetType = type));
}

/** The packet passes a bridge, if the device is one, and then arrives through the device. */
export async function fromBridge(
  passage: Passage,
  branches: readonly Branch[],
  device: string | undefined,
  hooks: readonly number[] = [Hook.prerouting, Hook.input],
): Promise<readonly Branch[]> {
  let here = branches;
  for (const hook of hooks) here = await atBridge(passage, here, device, hook);
  return atDevice(passage, Point.ingress, here, device, (state, name) => setInterfaces(state, name, ""));
}

/** Passes the chains at a hook of a bridge, if the device is one. */
export async function atBridge(
  passage: Passage,
  branches: readonly Branch[],
  device: string | undefined,
  hook: number,
  isMet?: (chain: HookedChain) => boolean,
): Promise<readonly Branch[]> {
  const ports = device === undefined ? undefined : await passage.routing.portsOf(device);
  if (ports === undefined) return branches;
  const port = ports.length === 1 ? ports[0] : undefined;
  const isIn = hook === Hook.prerouting || hook === Hook.input;
  const change = (state: PacketState): void => setInterfaces(state, isIn ? port : "", isIn ? "" : port);
  return passage.through(bridgePoint(hook), branches, change, undefined, isMet);
}

/** The packet leaves through a device, and then through a port of a bridge. */
export async function send(
  passage: Passage,
  branches: readonly Branch[],
  device: string | undefined,
): Promise<readonly Branch[]> {
  let here = await atDevice(passage, Point.egress, branches, device, (state, name) => setInterfaces(state, "", name));
  const ports = device === undefined ? undefined : await passage.routing.portsOf(device);
  if (ports === undefined) return here;
  for (const hook of [Hook.output, Hook.postrouting]) here = await atBridge(passage, here, device, hook);
  return atDevice(passage, Point.egress, here, ports, (state, name) => setInterfaces(state, "", name));
}

/**
 * Passes the chains of a device. If it is unknown, or one of several, each device with chains is tried.
 * @param device undefined: any device of this node.
 */
async function atDevice(
  passage: Passage,
  point: number,
  branches: readonly Branch[],
  device: string | readonly string[] | undefined,
  change: (state: PacketState, device: string) => void,
): Promise<readonly Branch[]> {
  const devices = await passage.ruleset.devicesAt(point);
  const at = (name: string, from: readonly Branch[]): Promise<readonly Branch[]> =>
    passage.through(point, from, (state) => change(state, name), name);
  if (typeof device === "string") return devices.has(device) ? at(device, branches) : branches;
  const possible = [...devices].filter((name) => device === undefined || device.includes(name));
  if (possible.length === 0) return branches;
  if (device?.length === 1) return at(possible[0] ?? "", branches);
  const what = `the packet's interface: chains at ${pointName(point)} see the packets of ${possible.join(", ")}`;
  const passed = branches.map((branch) => guessed(branch, what, "no"));
  for (const name of possible) {
    passed.push(
      ...(await at(
        name,
        branches.map((branch) => guessed(branch, what, name)),
      )),
    );
  }
  return merged(passed);
}
