import { expect, test } from "vitest";
import { keyOf, NODE_PORT, partsOf } from "../../../src/model/claim-keys.js";
import type { Protocol } from "../../../src/base/protocols.js";

test("each claim has a key of its own, which says what is claimed", () => {
  const addresses = [NODE_PORT, "0.0.0.0", "0.0.0.1", "10.96.0.1", "128.0.0.0", "255.255.255.255", "::", "fd00::1"];
  const protocols: Protocol[] = ["TCP", "UDP", "SCTP"];
  const claims = addresses.flatMap((address) =>
    protocols.flatMap((protocol) => [1, 80, 65_535].map((port) => ({ address, protocol, port }))),
  );
  const keys = claims.map(({ address, protocol, port }) => keyOf(address, protocol, port));
  expect(keys.map(partsOf)).toEqual(claims);
  expect(new Set(keys).size).toBe(claims.length);
});
