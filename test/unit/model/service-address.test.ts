import { expect, test } from "vitest";
import {
  addressesOf,
  addressOf,
  addressText,
  keyOf,
  NODE_PORT,
  type ServiceAddress,
} from "../../../src/model/service-address.js";
import type { Protocol } from "../../../src/base/protocols.js";

test("each address of both families has its own key, and the key returns the address", () => {
  const ip = [NODE_PORT, "0.0.0.0", "0.0.0.1", "10.96.0.1", "128.0.0.0", "255.255.255.255"];
  const ip6 = [NODE_PORT, "::", "fd00::1"];
  const protocols: Protocol[] = ["TCP", "UDP", "SCTP"];
  const addresses = protocols.flatMap((protocol) =>
    [1, 80, 65_535].flatMap((port): ServiceAddress[] => [
      ...ip.map((address) => ({ family: "ip" as const, address, protocol, port })),
      ...ip6.map((address) => ({ family: "ip6" as const, address, protocol, port })),
    ]),
  );
  const keys = addresses.map(keyOf);
  expect(keys.map(addressOf)).toEqual(addresses);
  expect(new Set(keys).size).toBe(addresses.length);
});

test("the addresses of a service port are listed as text", () => {
  const port = { clusterIP: "fd00::1", externalIPs: ["fd00::2"], loadBalancerIPs: ["fd00::3"], nodePort: 30080 };
  const texts = Array.from(addressesOf("ip6", { ...port, protocol: "UDP", port: 53 }), addressText);
  expect(texts).toEqual(["[fd00::1]:53/UDP", "[fd00::2]:53/UDP", "[fd00::3]:53/UDP", "IPv6 node port 30080/UDP"]);
  const none = { externalIPs: [], loadBalancerIPs: ["192.0.2.1"], nodePort: 0 };
  expect(Array.from(addressesOf("ip", { ...none, protocol: "TCP", port: 80 }), addressText)).toEqual([
    "192.0.2.1:80/TCP",
  ]);
});
