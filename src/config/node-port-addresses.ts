/** Keywords allowed in `nodePortAddresses` besides CIDRs, as in kube-proxy 1.37. */

/** CIDRs of each keyword. `primary` is a keyword too, but its addresses come from the Node object. */
const CIDRS_OF: ReadonlyMap<string, readonly string[]> = new Map([
  ["all", ["0.0.0.0/0", "::/0"]],
  ["localhost", ["127.0.0.0/8", "::1/128"]],
]);

export const NODE_PORT_WORDS: readonly string[] = ["primary", ...CIDRS_OF.keys()];

/** Replaces the keywords in the list by their CIDRs, except `primary`. */
export function expandNodePortAddresses(list: readonly string[]): string[] {
  return list.flatMap((entry) => CIDRS_OF.get(entry) ?? [entry]);
}

/** Takes a canonical CIDR. As in kube-proxy, a larger network that contains loopback addresses does not ask for them. */
export const isLoopbackCIDR = (cidr: string): boolean => cidr.startsWith("127.") || cidr === "::1/128";

/** Whether the list asks for node ports on loopback addresses. */
export function asksForLocalhost(list: readonly string[]): boolean {
  return expandNodePortAddresses(list).some(isLoopbackCIDR);
}

interface LocalhostSettings {
  readonly nodePortAddresses: readonly string[];
  readonly localhostNodePorts: boolean;
}

/** Whether node ports answer on loopback addresses of some family. */
export function servesLocalhost({ nodePortAddresses, localhostNodePorts }: LocalhostSettings): boolean {
  return localhostNodePorts && asksForLocalhost(nodePortAddresses);
}
