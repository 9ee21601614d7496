/** The other tests build the kustomizations of deploy/ without kubectl. */
import path from "node:path";
import { expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { mustRun } from "../lab/debian.ts";
import { kustomize, type KubeObject } from "../support/kustomize.ts";
import { kubectl } from "./kubectl.ts";

test.each(["kubernetes", "kubeadm", "canary"])("deploy/%s: kubectl builds the same objects as our tests", (name) => {
  const directory = path.resolve(import.meta.dirname, "../../deploy", name);
  const documents = parseAllDocuments(mustRun(kubectl(), ["kustomize", directory]));
  const objects = documents.map((document) => document.toJS() as KubeObject);
  const byKind = (a: KubeObject, b: KubeObject): number => a.kind.localeCompare(b.kind);
  expect(kustomize(directory).toSorted(byKind)).toEqual(objects.toSorted(byKind));
});
