/** Explains a packet whose incoming interface may not have been given: it comes by the interface of the route to its source. */
import { type Explanation, explainPacket } from "./explain-packet.js";
import type { PacketSpec } from "./packet.js";
import { type RoutedKernel, Routing } from "./routing.js";

export interface ArrivingExplanation extends Explanation {
  /** The incoming interface, if it was not given and the explanation depends on it. */
  readonly assumedInterface?: string;
}

/** Rejects with KernelError if the ruleset cannot be read. */
export async function explainArriving(kernel: RoutedKernel, spec: PacketSpec): Promise<ArrivingExplanation> {
  const asGiven = await explainPacket(kernel, spec);
  if (spec.inInterface !== "") return asGiven;
  const routing = new Routing(kernel);
  if (await routing.hasAddress(spec.source)) return asGiven;
  const route = await routing.route(spec.source);
  if (typeof route === "string") return asGiven;
  const assumedInterface = route.interfaceName;
  const explanation = await explainPacket(kernel, { ...spec, inInterface: assumedInterface });
  return { ...explanation, ...(textOf(explanation) !== textOf(asGiven) && { assumedInterface }) };
}

function textOf({ verdict, endpoints, reply, unknown }: Explanation): string {
  return JSON.stringify([verdict, endpoints, reply, unknown]);
}
