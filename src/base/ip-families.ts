/** The two address families and their various names. */
import type { IpFamily } from "./ip.js";

export const IP_FAMILIES: readonly IpFamily[] = ["ip", "ip6"];

/** The names that Kubernetes and people use. */
export const FAMILY_NAMES: Readonly<Record<IpFamily, "IPv4" | "IPv6">> = { ip: "IPv4", ip6: "IPv6" };

/** AF_INET and AF_INET6. */
export const AF = { ip: 2, ip6: 10 } as const satisfies Record<IpFamily, number>;

/** Returns undefined if `name` is neither "IPv4" nor "IPv6". */
export function familyNamed(name: unknown): IpFamily | undefined {
  return IP_FAMILIES.find((family) => FAMILY_NAMES[family] === name);
}

/** Returns undefined for an address family that is neither AF_INET nor AF_INET6. */
export function familyNumbered(number: number | undefined): IpFamily | undefined {
  return IP_FAMILIES.find((family) => AF[family] === number);
}
