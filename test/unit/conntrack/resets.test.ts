/** Warnings if services request resets that the kernel's settings prevent. */
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { FakeConntrack } from "../../fakes/fake-conntrack.ts";
import { ConntrackService } from "../../../src/conntrack/conntrack-service.js";
import { newModel, service, slice } from "../model/objects.js";
import { keptIn, type LogLine } from "../../support/log.ts";

const ASKS = { annotations: { "nft-proxier.dev/reset-removed-endpoints": "true" } };
const running: ConntrackService[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.stop()));
});

/** A node with this setting, and the number of times that it was read. */
function setUp(tcpLoose: () => Promise<number | undefined>) {
  const warnings: string[] = [];
  const push = ({ msg, namespace, service }: LogLine) =>
    warnings.push(`${String(namespace)}/${String(service)}: ${msg}`);
  const log = keptIn({ push }, "warn");
  const { model } = newModel({ trackRemovals: true });
  let probes = 0;
  const conntrack = new ConntrackService({
    table: new FakeConntrack(),
    model,
    families: ["ip"],
    localAddresses: () => Promise.resolve([]),
    log,
    settings: {
      tcpLoose: () => {
        probes++;
        return tcpLoose();
      },
    },
  });
  running.push(conntrack);
  const put = (name: string, endpoint: string, metadata = {}): void => {
    model.upsertService(service(name, { clusterIP: "10.0.0.1" }, { metadata }));
    model.upsertSlice(slice(`${name}-1`, name, [endpoint]));
  };
  const written = async (): Promise<void> => {
    conntrack.synced({ family: "ip", ok: true, services: [...model.takeDirty().services] });
    await conntrack.idle();
    await turn();
  };
  return { put, written, warnings, probes: () => probes };
}

const WARNING =
  "default/chat: services request resets of connections to removed endpoints, but net.netfilter.nf_conntrack_tcp_loose " +
  "is 0, so such connections hang until they time out. Run `sysctl -w net.netfilter.nf_conntrack_tcp_loose=1`";

test("a service that requests resets at the start causes one message, with what to do", async () => {
  const { put, written, warnings, probes } = setUp(() => Promise.resolve(0));
  put("chat", "10.1.0.1", ASKS);
  await written();
  expect(warnings).toEqual([WARNING]);
  put("chat", "10.1.0.2", ASKS);
  await written();
  expect([warnings.length, probes()]).toEqual([1, 1]);
});

test("a service that requests resets later causes a message", async () => {
  const { put, written, warnings, probes } = setUp(() => Promise.resolve(0));
  put("chat", "10.1.0.1");
  await written();
  expect([warnings, probes()]).toEqual([[], 0]);
  put("chat", "10.1.0.1", ASKS);
  await written();
  expect(warnings).toEqual([WARNING]);
});

test.each<[string, () => Promise<number | undefined>]>([
  ["resets are possible", () => Promise.resolve(1)],
  ["the kernel's setting is unknown", () => Promise.resolve(undefined)],
])("nothing is logged if %s", async (_name, tcpLoose) => {
  const { put, written, warnings, probes } = setUp(tcpLoose);
  put("chat", "10.1.0.1", ASKS);
  await written();
  expect([warnings, probes()]).toEqual([[], 1]);
});
