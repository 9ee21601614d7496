/** The hooks that a packet passes, among them those of devices and bridges on its way to and from the hooks of IP. */
import { Hook } from "../../../nft/kernel/constants.js";
import { unknownBits } from "./bits.js";
import { type Branch, changed, guessAll, merged } from "./branch.js";
import { bridgePoint, type IsMet, Point, pointName } from "./hooks.js";
import type { World } from "./machine-world.js";
import type { PacketState } from "./packet-state.js";
import type { Final } from "./run-chain.js";
import { runHook } from "./run-hook.js";

/** Rules see the interfaces of the place where they run. */
export function setInterfaces(state: PacketState, received?: string, sent?: string): void {
  state.inInterface = received;
  state.outInterface = sent;
}

export class Passage {
  /** @param isMet whether the packet meets a chain. By default, it meets all. */
  constructor(
    private readonly world: World,
    private readonly onFinal: (final: Final, point: number) => unknown,
    private readonly isMet: IsMet = () => true,
  ) {}

  /** Passes the chains at a point. @param device absent: chains there belong to no device. */
  async through(
    point: number,
    branches: readonly Branch[],
    change?: (state: PacketState) => unknown,
    device?: string,
    isMet: IsMet = () => true,
  ): Promise<readonly Branch[]> {
    const here = change === undefined ? branches : changed(branches, change);
    const finals: Final[] = [];
    const hooked = (await this.world.rules.hooked()).filter((chain) => {
      const isThere = device === undefined || (chain.base.devices ?? []).includes(device);
      return isThere && isMet(chain) && this.isMet(chain);
    });
    const passed = await runHook(this.world, hooked, point, here, finals);
    for (const final of finals) await this.onFinal(final, point);
    return passed;
  }

  /** The packet arrives through a device, and through the port of a bridge before. */
  async receive(branches: readonly Branch[], device: string | undefined): Promise<readonly Branch[]> {
    return this.fromBridge(await this.fromPort(branches, device), device);
  }

  /** The packet arrives through the port of a bridge, if the device is one. */
  async fromPort(branches: readonly Branch[], device: string | undefined): Promise<readonly Branch[]> {
    const ports = await this.world.routes.portsOf(device);
    if (ports === undefined) return branches;
    const passed = await this.#atDevice(Point.ingress, branches, ports, (state, name) => {
      setInterfaces(state, name, "");
      // The bridge decides later whether the packet is for this node.
      state.packetType = unknownBits(1);
    });
    const type = branches[0]?.state.packetType;
    return type === undefined ? passed : changed(passed, (state) => (state.packetType = type));
  }

  /** The packet passes a bridge, if the device is one, and then arrives through the device. */
  async fromBridge(
    branches: readonly Branch[],
    device: string | undefined,
    hooks: readonly number[] = [Hook.prerouting, Hook.input],
  ): Promise<readonly Branch[]> {
    let here = branches;
    for (const hook of hooks) here = await this.atBridge(here, device, hook);
    return this.#atDevice(Point.ingress, here, device, (state, name) => setInterfaces(state, name, ""));
  }

  /** Passes the chains at a hook of a bridge, if the device is one. */
  async atBridge(
    branches: readonly Branch[],
    device: string | undefined,
    hook: number,
    isMet?: IsMet,
  ): Promise<readonly Branch[]> {
    const ports = await this.world.routes.portsOf(device);
    if (ports === undefined) return branches;
    const port = ports.length === 1 ? ports[0] : undefined;
    const isIn = hook === Hook.prerouting || hook === Hook.input;
    const change = (state: PacketState): void => setInterfaces(state, isIn ? port : "", isIn ? "" : port);
    return this.through(bridgePoint(hook), branches, change, undefined, isMet);
  }

  /** The packet leaves through a device, and then through a port of a bridge. */
  async send(branches: readonly Branch[], device: string | undefined): Promise<readonly Branch[]> {
    const change = (state: PacketState, name: string): void => setInterfaces(state, "", name);
    let here = await this.#atDevice(Point.egress, branches, device, change);
    const ports = await this.world.routes.portsOf(device);
    if (ports === undefined) return here;
    for (const hook of [Hook.output, Hook.postrouting]) here = await this.atBridge(here, device, hook);
    return this.#atDevice(Point.egress, here, ports, change);
  }

  /**
   * Passes the chains of a device. If it is unknown, or one of several, each device with chains is tried.
   * @param device undefined: any device of this node.
   */
  async #atDevice(
    point: number,
    branches: readonly Branch[],
    device: string | readonly string[] | undefined,
    change: (state: PacketState, device: string) => void,
  ): Promise<readonly Branch[]> {
    const hooked = await this.world.rules.hooked();
    const devices = new Set(hooked.filter((chain) => chain.point === point).flatMap(({ base }) => base.devices ?? []));
    const at = (name: string, from: readonly Branch[]): Promise<readonly Branch[]> =>
      this.through(point, from, (state) => change(state, name), name);
    if (typeof device === "string") return devices.has(device) ? at(device, branches) : branches;
    const possible = [...devices].filter((name) => device === undefined || device.includes(name));
    if (possible.length === 0) return branches;
    if (device?.length === 1) return at(possible[0] ?? "", branches);
    const what = `the packet's interface: chains at ${pointName(point)} see the packets of ${possible.join(", ")}`;
    const passed = guessAll(branches, what, "no");
    for (const name of possible) passed.push(...(await at(name, guessAll(branches, what, name))));
    return merged(passed);
  }
}
