/** The request for the owner of an address and port. */
import type { Addressed } from "../../tools/explain/machine/packet-spec.js";
import { NODE_PORT, type ServiceAddress } from "../../model/service-address.js";

/** Returns the words of the path below "/v1/". */
export function ownerPath({ family, protocol, destination, destinationPort }: Addressed): readonly string[] {
  return ["owner", family, protocol.toUpperCase(), String(destinationPort), destination];
}

/** Parses the words of a path. Returns undefined for any other path. */
export function ownerQuestion(path: readonly string[]): ServiceAddress | undefined {
  const [what, family, protocol, port, address = NODE_PORT, ...more] = path;
  if (what !== "owner" || more.length > 0 || (family !== "ip" && family !== "ip6")) return undefined;
  if (protocol !== "TCP" && protocol !== "UDP" && protocol !== "SCTP") return undefined;
  return { family, protocol, port: Number(port), address };
}
