/** When the daemon decides that it has many services. */
import { expect, it, vi } from "vitest";

import { SizeWatch } from "../../../src/daemon/size-watch.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { decoded } from "../../support/decoded.js";
import { makeProxier } from "../proxier/support/proxier.js";

it.each([
  ["200 services", 200, 1, 0],
  ["201 services", 201, 1, 1],
  ["a service of 200 ports", 1, 200, 0],
  ["a service of 201 ports", 1, 201, 1],
])("%s", (_what, services, ports, times) => {
  const setUp = vi.fn();
  const proxier = makeProxier(new FakeKernel());
  proxier.observe(new SizeWatch(proxier.model, setUp));
  for (let i = 0; i < services; i++) {
    const list = Array.from({ length: ports }, (_, port) => ({ name: `p${port}`, port: port + 1 }));
    const object = { metadata: { name: `s${i}` }, spec: { clusterIP: `10.96.${i >> 8}.${i & 255}`, ports: list } };
    proxier.upsert(decoded({ kind: "Service", object }));
  }
  expect(setUp).toHaveBeenCalledTimes(times);
});
