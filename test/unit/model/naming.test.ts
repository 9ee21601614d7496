/** Reports of claims that were lost, or passed to another service: in pieces, so that nothing waits for tens of thousands of them. */
import { expect, test } from "vitest";
import type { Pieces } from "../../../src/base/time-slice.js";
import { type ModelUnderTest, newModel, service, slice } from "./objects.js";

/** Number of services in each test. */
const MANY = 1000;
const CREATED = { creationTimestamp: "2024-01-01T00:00:00Z" };

/** Every second service claims the external IP and the node port of the one before it. All claim a second external IP, and one of IPv6. */
function pair(i: number): ReturnType<typeof service> {
  const ip = `10.1.${i >> 8}.${i & 255}`;
  const shared = i >> 1;
  const clusterIPs = [ip, `fd00::${i.toString(16)}`];
  const externalIPs = [`192.0.${shared >> 8}.${shared & 255}`, "198.51.100.1", "2001:db8::1"];
  const ports = [{ port: 80, nodePort: 20_000 + shared }];
  return service(`s${i}`, { clusterIP: ip, clusterIPs, externalIPs, ports });
}

function clashing(): ModelUnderTest {
  const under = newModel();
  for (let i = 0; i < MANY; i++) under.model.upsertService(pair(i));
  return under;
}

/** Runs it to its end. Returns the number of reports in each of its pieces. */
function piecesOf(naming: Pieces<void>, { problems, transfers }: ModelUnderTest): number[] {
  const pieces: number[] = [];
  for (let said = problems.length + transfers.length, done: boolean | undefined = false; done !== true;) {
    ({ done } = naming.next());
    const now = problems.length + transfers.length;
    pieces.push(now - said);
    said = now;
  }
  return pieces;
}

test("thousands of lost claims are reported in pieces of one service each, with the same text and order as at once", () => {
  const [whole, sliced] = [clashing(), clashing()];
  whole.model.takeDirty();
  const { naming, ...dirty } = sliced.model.takeDirtyInPieces();
  expect(dirty.services).toHaveLength(MANY);
  expect(sliced.problems).toEqual([]);
  const pieces = piecesOf(naming, sliced);
  expect(sliced.problems).toEqual(whole.problems);
  // All but the first lose "198.51.100.1", and half of them lose the rest: one problem for each field.
  expect(sliced.problems).toHaveLength(MANY - 1 + MANY / 2);
  expect(Math.max(...pieces)).toBe(2);
});

test("thousands of claims that move to other services are reported in pieces of one pair of services each", () => {
  const both = [clashing(), clashing()];
  for (const { model } of both) {
    model.takeDirty();
    // The second service of each pair gets the claims of the first; the very last gets the claim that all share.
    for (let i = MANY - 1; i > 0; i -= 2) model.upsertSlice(slice(`e${i}`, `s${i}`, ["10.2.0.1"]));
  }
  const [whole, sliced] = both;
  whole.model.takeDirty();
  const before = sliced.problems.length;
  const pieces = piecesOf(sliced.model.takeDirtyInPieces().naming, sliced);
  expect(sliced.transfers).toEqual(whole.transfers);
  expect(sliced.transfers).toHaveLength(MANY / 2);
  expect(sliced.problems).toHaveLength(before);
  expect(Math.max(...pieces)).toBe(1);
  // All are checked before the first is reported.
  expect(pieces.indexOf(1)).toBeGreaterThan(10);
});

test("services that lost nothing are also checked in pieces", () => {
  const { model, ...under } = newModel();
  for (let i = 0; i < MANY; i += 2) model.upsertService(pair(i));
  const one = (name: string) => service(name, { clusterIP: "10.0.0.1" });
  model.upsertService(one("a"));
  model.upsertService(one("b"));
  expect(piecesOf(model.takeDirtyInPieces().naming, { model, ...under }).length).toBeGreaterThan(MANY / 2 / 100);
  expect(under.problems).toContainEqual(expect.stringMatching(/^Service default\/b spec.clusterIP: .* by name$/));
});

test("without contested claims there is nothing to check", () => {
  const under = newModel();
  for (let i = 0; i < MANY; i += 2)
    under.model.upsertService(service(`s${i}`, { clusterIP: `10.1.${i >> 8}.${i & 255}` }));
  expect(piecesOf(under.model.takeDirtyInPieces().naming, under)).toEqual([0]);
});

test("a change between two pieces is reported once: now if it is complete, or else with the next changes", () => {
  const under = newModel();
  const { model, problems } = under;
  const put = (name: string, externalIP: string) =>
    model.upsertService(service(name, { clusterIP: `10.0.0.${name.charCodeAt(0)}`, externalIPs: [externalIP] }));
  for (const name of ["a", "b", "c"]) put(name, "192.0.2.1");
  const lost = (name: string, holder: string, why: string) =>
    `Service default/${name} spec.externalIPs: 192.0.2.1:80/TCP belongs to default/${holder}, which ${why}`;
  const { naming } = model.takeDirtyInPieces();
  naming.next();
  expect(problems).toEqual([lost("b", "a", "comes first by name")]);
  // One service joins the claim, and one gives it up.
  put("d", "192.0.2.1");
  put("c", "192.0.2.2");
  piecesOf(naming, under);
  expect(problems).toHaveLength(1);
  expect(model.takeDirty().services.toSorted()).toEqual(["default/c", "default/d"]);
  expect(problems).toEqual([lost("b", "a", "comes first by name"), lost("d", "a", "was there first")]);
  put("d", "192.0.2.3");
  model.takeDirty();
  expect(problems).toHaveLength(2);
});

test("a claim that moves between two pieces is reported both times as it moved", () => {
  const under = newModel();
  const { model, transfers } = under;
  for (const [i, name] of ["a", "b", "c"].entries())
    model.upsertService(
      service(name, { clusterIP: `10.0.0.${i + 1}`, externalIPs: ["192.0.2.1"] }, { metadata: CREATED }),
    );
  model.takeDirty();
  model.removeService("default/a");
  const { naming } = model.takeDirtyInPieces();
  model.upsertSlice(slice("c-1", "c", ["10.2.0.1"]));
  piecesOf(naming, under);
  model.takeDirty();
  expect(transfers).toEqual([
    "default/b from default/a: 192.0.2.1:80/TCP (no longer claimed there)",
    "default/c from default/b: 192.0.2.1:80/TCP (no usable endpoint there)",
  ]);
});
