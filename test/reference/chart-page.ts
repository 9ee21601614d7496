/** deploy/chart/README.md, from the comments in values.yaml and in the files of examples/. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { isMap, isNode, isScalar, type Pair, parseDocument, type YAMLMap } from "yaml";

const chart = path.resolve(import.meta.dirname, "../../deploy/chart");
const read = (name: string): string => readFileSync(path.join(chart, name), "utf8");

/** The lines of a comment as one text, for a cell of a table. */
const sentence = (comment: string | null | undefined): string =>
  (comment ?? "")
    .split("\n")
    .map((line) => line.trim())
    .join(" ")
    .replaceAll("|", "\\|");

/** The comment above a key. yaml gives the one above the first key to the map. */
function commentOf(map: YAMLMap, { key }: Pair): string {
  const own = isScalar(key) ? key.commentBefore : undefined;
  return sentence(own ?? (map.items[0]?.key === key ? map.commentBefore : undefined));
}

const hasComments = (map: YAMLMap): boolean =>
  map.items.some((pair) => commentOf(map, pair) !== "" || (isMap(pair.value) && hasComments(pair.value)));

/** One row for each value. A map is one value if nothing in it is described. */
function rows(map: YAMLMap, prefix = ""): readonly string[] {
  return map.items.flatMap((pair) => {
    const name = prefix + String(pair.key);
    const text = commentOf(map, pair);
    if (!isMap(pair.value) || !hasComments(pair.value)) {
      const value = JSON.stringify(isNode(pair.value) ? pair.value.toJSON() : pair.value);
      return [`| \`${name}\` | \`${value}\` | ${text} |`];
    }
    return [...(text === "" ? [] : [`| \`${name}\` | | ${text} |`]), ...rows(pair.value, `${name}.`)];
  });
}

/** Returns the page. */
export function chartPage(): string {
  const values = parseDocument(read("values.yaml"));
  if (!isMap(values.contents)) throw new Error("values.yaml has no map");
  const examples = readdirSync(path.join(chart, "examples")).map((name) => {
    const [comment = ""] = /^(?:#.*\n)+/.exec(read(`examples/${name}`)) ?? [];
    const need = sentence(comment.replaceAll(/^# |\n$/gm, ""));
    return `| [${name}](examples/${name}) | ${need} |`;
  });
  return `# Helm chart

<!-- \`node test/reference/write.ts\` writes this page from values.yaml and examples/. -->

    helm install nft-proxier nft-proxier-X.Y.Z.tgz -n kube-system --values FILE

A release has the package of the chart; in a checkout, use the directory \`deploy/chart\`. \`deploy/daemon-set.md\` has the steps before and after the
installation. helm refuses an invalid value, and names it.

## Examples

Each file is for one need. Replace the names and addresses in it.

| file | need |
|---|---|
${examples.join("\n")}

## Two releases

Releases with different names share no object, so each pool of nodes can have a release with values of its own. Their node selectors must not overlap:
two pods on one node need the same ports. Enable \`metrics.prometheusRule\` and \`metrics.dashboard\` in one of them only. The pods of all releases have the
label \`k8s-app: nft-proxier\`, and those of one have \`app.kubernetes.io/instance: RELEASE\`.

## Values

${sentence(values.commentBefore)}

| value | default | |
|---|---|---|
${rows(values.contents).join("\n")}
`;
}
