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
  const explanation = await explainPacket(kernel, spec);
  if (spec.inInterface !== "" || !isOpen(explanation)) return explanation;
  const routing = new Routing(kernel);
  if (await routing.hasAddress(spec.source)) return explanation;
  const route = await routing.route(spec.source);
  if (typeof route === "string") return explanation;
  const assumedInterface = route.interfaceName;
  return { ...(await explainPacket(kernel, { ...spec, inInterface: assumedInterface })), assumedInterface };
}

function isOpen({ verdict, endpoints, reply }: Explanation): boolean {
  const replies = [reply, ...endpoints.map((endpoint) => endpoint.reply)];
  return verdict === "unknown" || replies.some((each) => each?.verdict === "unknown");
}
