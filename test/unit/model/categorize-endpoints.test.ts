import { describe, expect, test } from "vitest";
import { categorizeEndpoints } from "../../../src/model/categorize-endpoints.js";
import { NO_HINTS, READY, SERVING, TERMINATING, type Hints } from "../../../src/objects/endpoint-state.js";
import { EndpointList, NO_ENDPOINTS } from "../../../src/objects/endpoint-list.js";
import type { EndpointColumns } from "../../../src/objects/records.js";

const UP = READY | SERVING;
const DRAINING = SERVING | TERMINATING;
const DEAD = TERMINATING;
const UNREADY = SERVING;

interface Row {
  /** "L" local, "R" remote; then the state; then hints. */
  readonly name: string;
  readonly local?: boolean;
  readonly state: number;
  readonly nodes?: readonly string[];
  readonly zones?: readonly string[];
}

/** A name is one letter. */
function addressOf(name: string): string {
  return `10.0.0.${name.codePointAt(0)}`;
}

function candidates(rows: readonly Row[]): EndpointColumns {
  const hints = rows.map(({ nodes = [], zones = [] }): Hints => ({ nodes, zones }));
  return {
    endpoints: EndpointList.of(
      "ip",
      rows.map(({ name, local = false }) => ({ address: addressOf(name), port: 1, local })),
    ),
    states: rows.map((row) => row.state),
    hints: rows.some((row) => row.nodes ?? row.zones) ? hints : undefined,
    details: undefined,
  };
}

function names(endpoints: EndpointList): string {
  return [...endpoints].map(({ address }) => String.fromCodePoint(Number(address.split(".").at(-1)))).join(" ");
}

function run(rows: readonly Row[], node = { nodeName: "here", zone: "a" } as { nodeName: string; zone?: string }) {
  const lists = categorizeEndpoints(candidates(rows), node, { cluster: true, local: true });
  return { cluster: names(lists.clusterEndpoints), local: names(lists.localEndpoints), any: lists.hasAnyEndpoint };
}

describe("categorizeEndpoints: ready and terminating", () => {
  test.each<[string, Row[], ReturnType<typeof run>]>([
    ["no endpoint", [], { cluster: "", local: "", any: false }],
    [
      "all ready",
      [
        { name: "r", state: UP },
        { name: "l", state: UP, local: true },
      ],
      { cluster: "r l", local: "l", any: true },
    ],
    [
      "neither ready nor serving",
      [
        { name: "r", state: 0 },
        { name: "t", state: DEAD },
      ],
      { cluster: "", local: "", any: false },
    ],
    [
      "serving, not ready, not terminating",
      [{ name: "r", state: UNREADY, local: true }],
      { cluster: "", local: "", any: false },
    ],
    [
      "ready beats terminating",
      [
        { name: "r", state: UP },
        { name: "t", state: DRAINING },
      ],
      { cluster: "r", local: "", any: true },
    ],
    [
      "terminating endpoints if none is ready on any node",
      [
        { name: "t", state: DRAINING },
        { name: "d", state: DEAD },
        { name: "l", state: DRAINING, local: true },
      ],
      { cluster: "t l", local: "l", any: true },
    ],
    [
      "ready beats terminating separately for each list",
      [
        { name: "r", state: UP },
        { name: "l", state: DRAINING, local: true },
      ],
      { cluster: "r", local: "l", any: true },
    ],
    [
      "local ready beats local terminating",
      [
        { name: "r", state: UP },
        { name: "l", state: UP, local: true },
        { name: "t", state: DRAINING, local: true },
      ],
      { cluster: "r l", local: "l", any: true },
    ],
    ["endpoints only elsewhere", [{ name: "r", state: UP }], { cluster: "r", local: "", any: true }],
    [
      "ready and terminating at once counts as ready",
      [
        { name: "p", state: READY | DRAINING, local: true },
        { name: "t", state: DRAINING, local: true },
      ],
      { cluster: "p", local: "p", any: true },
    ],
  ])("%s", (_name, rows, expected) => {
    expect(run(rows)).toEqual(expected);
  });
});

describe("categorizeEndpoints: topology hints", () => {
  const near = { nodes: ["here"], zones: ["a"] };
  const far = { nodes: ["there"], zones: ["b"] };

  test.each<[string, Row[], string, { nodeName: string; zone?: string }?]>([
    [
      "node hints first",
      [
        { name: "x", state: UP, ...near },
        { name: "y", state: UP, nodes: ["there"], zones: ["a"] },
      ],
      "x",
    ],
    [
      "zone hints when no node hint names us",
      [
        { name: "x", state: UP, nodes: ["n1"], zones: ["a"] },
        { name: "y", state: UP, ...far },
      ],
      "x",
    ],
    [
      "zone hints if one endpoint has no node hint",
      [
        { name: "x", state: UP, zones: ["b"], nodes: ["here"] },
        { name: "y", state: UP, zones: ["a"] },
      ],
      "y",
    ],
    [
      "no hints if one ready endpoint has none",
      [
        { name: "x", state: UP, ...near },
        { name: "y", state: UP },
      ],
      "x y",
    ],
    [
      "an unready endpoint without hints does not matter",
      [
        { name: "x", state: UP, ...near },
        { name: "y", state: UP, ...far },
        { name: "z", state: UNREADY },
      ],
      "x",
    ],
    [
      "an unready endpoint that names us does not count",
      [
        { name: "x", state: UP, ...far },
        { name: "y", state: UNREADY, ...near },
      ],
      "x",
    ],
    [
      "no hints if none names us",
      [
        { name: "x", state: UP, ...far },
        { name: "y", state: UP, ...far },
      ],
      "x y",
    ],
    [
      "no zone hints on a node without a zone",
      [
        { name: "x", state: UP, zones: ["a"] },
        { name: "y", state: UP, zones: ["b"] },
      ],
      "x y",
      { nodeName: "here" },
    ],
    [
      "an empty zone name means no zone",
      [
        { name: "x", state: UP, zones: [""] },
        { name: "y", state: UP, zones: ["b"] },
      ],
      "x y",
      { nodeName: "here" },
    ],
    [
      "several zones in one hint",
      [
        { name: "x", state: UP, zones: ["b", "a"] },
        { name: "y", state: UP, zones: ["b"] },
      ],
      "x",
    ],
    [
      "terminating endpoints are never narrowed",
      [
        { name: "x", state: DRAINING, ...near },
        { name: "y", state: DRAINING, ...far },
      ],
      "x y",
    ],
  ])("%s", (_name, rows, cluster, node) => {
    expect(run(rows, node).cluster).toBe(cluster);
  });

  test("hints never narrow the local list", () => {
    expect(
      run([
        { name: "x", state: UP, ...near, local: true },
        { name: "y", state: UP, ...far, local: true },
      ]),
    ).toEqual({ cluster: "x", local: "x y", any: true });
  });
});

test("an unused list stays empty, and does not affect whether there is any endpoint", () => {
  const list = candidates([{ name: "r", state: UP, local: true }]);
  const node = { nodeName: "here" };
  expect(categorizeEndpoints(list, node, { cluster: false, local: false })).toEqual({
    clusterEndpoints: NO_ENDPOINTS,
    localEndpoints: NO_ENDPOINTS,
    hasAnyEndpoint: true,
  });
  expect(categorizeEndpoints(list, node, { cluster: true, local: false }).localEndpoints).toHaveLength(0);
  expect(
    categorizeEndpoints({ ...list, hints: [NO_HINTS] }, node, { cluster: true, local: false }).clusterEndpoints,
  ).toHaveLength(1);
});
