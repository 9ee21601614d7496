/** What may stand in `nodePortAddresses` beside CIDRs, as kube-proxy 1.37 has it. */

import type { ProxyConfig } from "./proxy-config.js";

/** Words for CIDRs; `primary` is a word as well, whose addresses the Node object has. */
const CIDRS_OF: ReadonlyMap<string, readonly string[]> = new Map([
  ["all", ["0.0.0.0/0", "::/0"]],
  ["localhost", ["127.0.0.0/8", "::1/128"]],
]);

export const NODE_PORT_WORDS: readonly string[] = ["primary", ...CIDRS_OF.keys()];

/** The list with CIDRs for its words; `primary` stays. */
export function expandNodePortAddresses(list: readonly string[]): string[] {
  return list.flatMap((entry) => CIDRS_OF.get(entry) ?? [entry]);
}

/** Of a CIDR in canonical form. A network that is larger and holds loopback addresses does not ask for them, as with kube-proxy. */
export const isLoopbackCIDR = (cidr: string): boolean => cidr.startsWith("127.") || cidr === "::1/128";

/** Whether the list asks for node ports on loopback addresses. */
export function asksForLocalhost(list: readonly string[]): boolean {
  return expandNodePortAddresses(list).some(isLoopbackCIDR);
}

/** Whether node ports answer on loopback addresses of some family. */
export function servesLocalhost({ nodePortAddresses, localhostNodePorts }: ProxyConfig): boolean {
  return localhostNodePorts && asksForLocalhost(nodePortAddresses);
}
