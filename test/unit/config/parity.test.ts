import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { IP_FAMILIES } from "../../../src/base/ip-families.js";
import { KUBE_PROXY_FLAGS } from "../../../src/cli/flags/kube-proxy-flags.js";
import type { Field } from "../../../src/config/config-fields.js";
import { configSchema } from "../../../src/config/schema.js";
import { registerLocalhostMetrics } from "../../../src/observe/localhost-metrics.js";
import { Metrics } from "../../../src/observe/metrics.js";
import { SliMetrics } from "../../../src/observe/sli-metrics.js";
import { PARITY } from "../../parity/list.js";
import { withTables } from "../../parity/table.js";

const flags = PARITY.flatMap((row) => row.flags ?? []);
const fields = PARITY.flatMap((row) => row.fields ?? []);

/** Returns the paths of fields that hold values. A list of objects counts, and so do the fields of its objects. */
function pathsOf({ section = {} }: Field<unknown>, prefix = ""): string[] {
  return Object.entries(section).flatMap(([name, field]) => {
    const path = prefix + name;
    if (field.section !== undefined) return pathsOf(field, `${path}.`);
    return [path, ...(field.item === undefined ? [] : pathsOf(field.item, `${path}.`))];
  });
}

test("nothing is listed twice", () => {
  const names = [...flags.map((flag) => `--${flag}`), ...fields, ...PARITY.flatMap((row) => row.metrics ?? [])];
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
});

test("every accepted flag is listed, and every listed flag is accepted", () => {
  expect(flags.sort()).toEqual(KUBE_PROXY_FLAGS.map(({ name }) => name).sort());
});

test("every accepted field is listed, and every listed field is accepted", () => {
  expect(fields.sort()).toEqual(pathsOf(configSchema).sort());
});

test("the listed metrics of kube-proxy exist, and no others", () => {
  const metrics = new Metrics({ families: ["ip", "ip6"], version: "0.0.0" });
  registerLocalhostMetrics(
    metrics.registry,
    IP_FAMILIES.map((family) => ({ family, ready: true, ruleset: { localhostNodePorts: 0 } })),
  );
  const registries = [metrics.registry, new SliMetrics().registry];
  const present = registries.flatMap((registry) => registry.getMetricsAsArray().map(({ name }) => name));
  const listed = PARITY.flatMap((row) => (row.metrics ?? []).map((name) => ({ name, ours: row.ours })));
  const isThere = (name: string) =>
    name.endsWith("_*") ? present.some((other) => other.startsWith(name.slice(0, -1))) : present.includes(name);
  expect(listed.filter(({ ours }) => ours !== "ignored").filter(({ name }) => !isThere(name))).toEqual([]);
  expect(listed.filter(({ ours }) => ours === "ignored").filter(({ name }) => isThere(name))).toEqual([]);
  const kubeProxys = present.filter((name) => /^(kubeproxy|rest_client|kubernetes)_/.test(name));
  expect(kubeProxys.filter((name) => !listed.some((row) => row.name === name))).toEqual([]);
});

test("every difference has a reason", () => {
  expect(PARITY.filter(({ ours, note }) => ours !== "same" && note === undefined)).toEqual([]);
});

test("docs/parity.md has these tables (`node test/parity/write.ts` writes them)", () => {
  const text = readFileSync(new URL("../../../docs/parity.md", import.meta.url), "utf8");
  expect(text).toBe(withTables(text));
});
