/**
 * Checks objects against the OpenAPI schemas of Kubernetes, and against those of the Prometheus Operator for its kinds. The schemas require
 * fields and have types, patterns and permitted values; they allow fields that they do not know.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { schemas } from "./helm.ts";

interface Model {
  validate(): void;
}

/** Returns the problems; empty if there are none. */
export async function schemaProblems(object: {
  readonly apiVersion: string;
  readonly kind: string;
}): Promise<string[]> {
  const { apiVersion, kind } = object;
  const packages = ["kubernetes-models", "@kubernetes-models/prometheus-operator"];
  const file = packages.map((name) => path.join(schemas(), name, apiVersion, `${kind}.js`)).find(existsSync);
  if (file === undefined) return [`there is no schema of ${apiVersion} ${kind}`];
  const module = (await import(pathToFileURL(file).href)) as Readonly<Record<string, new (data: object) => Model>>;
  try {
    new module[kind](object).validate();
    return [];
  } catch (error) {
    return [String(error)];
  }
}
