/** Changes that the kernel rejected together: which are tried together, which are found at fault, and how many rejections that takes. */
import { describe, expect, it } from "vitest";

import { NO_ENDPOINTS } from "../../../src/objects/endpoint-list.js";
import type { ServicePortView } from "../../../src/model/service-port-view.js";
import type { Change } from "../../../src/proxier/changed-claims.js";
import { type Group, Suspects } from "../../../src/proxier/suspects.js";
import type { ServiceState } from "../../../src/ruleset/family-ruleset.js";
import { PLAIN_VIEW } from "../model/objects.ts";

/** A service port with these addresses; "30000" is a node port. */
function view(...claims: readonly string[]): ServicePortView {
  const addresses = claims.filter((claim) => claim.includes("."));
  return {
    ...PLAIN_VIEW,
    clusterIP: addresses[0],
    externalIPs: addresses.slice(1, 2),
    loadBalancerIPs: addresses.slice(2),
    nodePort: Number(claims.find((claim) => !claim.includes(".")) ?? 0),
  };
}

const state = (...claims: readonly string[]): ServiceState =>
  claims.length === 0 ? [] : [{ view: view(...claims), cluster: NO_ENDPOINTS, local: NO_ENDPOINTS }];

function suspectsOf(services: Readonly<Record<string, [present: string[], former: string[]]>>): Suspects {
  const suspects = new Suspects("ip");
  suspects.add(
    Object.entries(services).map(([name, [present, former]]): [string, Change] => [
      name,
      { present: state(...present), former: state(...former) },
    ]),
  );
  return suspects;
}

const namesOf = (groups: readonly Group[]): string[][] =>
  groups.map((group) => [...group.keys()].toSorted()).toSorted(([a], [b]) => (a < b ? -1 : 1));

const EXCHANGED: [string, Parameters<typeof suspectsOf>[0], string[][]][] = [
  ["unrelated services are alone", { a: [["10.0.0.1"], []], b: [["10.0.0.2"], []] }, [["a"], ["b"]]],
  ["an address moves", { a: [[], ["10.0.0.1"]], b: [["10.0.0.1"], []], c: [["10.0.0.2"], []] }, [["a", "b"], ["c"]]],
  ["a node port moves", { a: [["10.0.0.1"], ["10.0.0.1", "30000"]], b: [["10.0.0.2", "30000"], []] }, [["a", "b"]]],
  [
    "two services exchange their addresses",
    { a: [["10.0.0.1"], ["10.0.0.2"]], b: [["10.0.0.2"], ["10.0.0.1"]], c: [["10.0.0.3"], ["10.0.0.3"]] },
    [["a", "b"], ["c"]],
  ],
  [
    "one service is related to two unrelated ones, and another one to one of these",
    {
      a: [["10.0.0.1"], []],
      b: [["10.0.0.2", "10.0.0.3"], []],
      c: [["10.0.0.1"], ["10.0.0.2"]],
      d: [[], ["10.0.0.1"]],
      e: [["10.0.0.3"], []],
    },
    [["a", "b", "c", "d", "e"]],
  ],
];

describe("services between which an address moves are tried together", () => {
  it.each(EXCHANGED)("%s", (_what, services, groups) => {
    const suspects = suspectsOf(services);
    expect(suspects.size).toBe(Object.keys(services).length);
    expect(namesOf(suspects.takeAll())).toEqual(groups);
    expect(suspects.size).toBe(0);
  });

  it("a change includes all related ones, by its former and its desired state", () => {
    const suspects = suspectsOf({
      a: [["10.0.0.1"], []],
      b: [["10.0.0.2"], []],
      c: [[], ["10.0.0.3"]],
      d: [["10.0.0.4"], []],
    });
    expect(namesOf(suspects.takeRelated("x", [view("10.0.0.1")], state("10.0.0.3")))).toEqual([["a"], ["c"]]);
    expect(namesOf(suspects.takeRelated("d", [], []))).toEqual([["d"]]);
    expect([...suspects.services]).toEqual(["b"]);
  });

  it("later changes are tried first", () => {
    const suspects = suspectsOf({ a: [["10.0.0.1"], []], b: [["10.0.0.2"], []] });
    suspects.add([["c", { present: state("10.0.0.3"), former: [] }]]);
    expect(namesOf(suspects.takeNext())).toEqual([["c"]]);
  });
});

interface Found {
  readonly atFault: number[];
  readonly accepted: number[];
  refusals: number;
  tries: number;
}

/** Tries `count` unrelated services; ends when further tries must wait for another write. */
function find(count: number, refuses: (service: number) => boolean, suspects = many(count)): Found {
  const found: Found = { atFault: [], accepted: [], refusals: 0, tries: 0 };
  const numbers = (groups: readonly Group[]): number[] => groups.flatMap((group) => [...group.keys()].map(Number));
  while (suspects.size > 0) {
    const groups = suspects.takeNext();
    found.tries++;
    if (!numbers(groups).some(refuses)) {
      suspects.proved();
      suspects.accepted(groups.length);
      found.accepted.push(...numbers(groups));
      continue;
    }
    found.refusals++;
    const changes = new Map(groups.flatMap((group) => [...group]));
    if (suspects.refused(changes, groups.length)) found.atFault.push(...numbers(groups));
    if (suspects.stuck) break;
  }
  for (const list of [found.atFault, found.accepted]) list.sort((a, b) => a - b);
  return found;
}

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const many = (count: number): Suspects =>
  suspectsOf(Object.fromEntries(range(count).map((i) => [i, [[`10.1.${i >> 8}.${i & 255}`], []]])));

describe("the services at fault", () => {
  it.each<[string, number, number[]]>([
    ["one of one", 1, [0]],
    ["two of two", 2, [0, 1]],
    ["one of many", 10_000, [6170]],
    ["neighbours", 1000, [499, 500]],
    ["the first and the last", 1000, [0, 999]],
    ["several", 1000, [3, 250, 251, 700, 999]],
    ["the first ten", 1000, range(10)],
  ])("%s: only they are refused, and all others are accepted, with about log2(n) tries each", (_what, count, bad) => {
    const { atFault, accepted, refusals, tries } = find(count, (service) => bad.includes(service));
    expect(atFault).toEqual(bad);
    expect(accepted).toEqual(range(count).filter((service) => !bad.includes(service)));
    const each = Math.ceil(Math.log2(count)) + 1;
    expect(refusals).toBeLessThanOrEqual(bad.length * (each + 1));
    expect(tries).toBeLessThanOrEqual((bad.length + 1) * 3 * each);
  });

  it("if the kernel accepts none of three or more: one write tries 16 of them, and each later one another", () => {
    const suspects = many(1000);
    const refuses = (): boolean => true;
    expect(find(1000, refuses, suspects)).toEqual({ atFault: [], accepted: [], refusals: 16, tries: 16 });
    for (let write = 0; write < 2000; write++) expect(find(1000, refuses, suspects).tries).toBe(1);
    expect(suspects.size).toBe(1000);
    expect(find(3, refuses)).toMatchObject({ atFault: [], refusals: 16 });
  });

  it("are still found as soon as the kernel accepts another change", () => {
    const suspects = many(40);
    const refuses = (service: number): boolean => service < 30;
    const atFault: number[] = [];
    for (let write = 0; write < 40 && suspects.size > 0; write++) atFault.push(...find(40, refuses, suspects).atFault);
    expect(atFault.toSorted((a, b) => a - b)).toEqual(range(30));
  });
});
