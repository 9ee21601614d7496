import { expect } from "vitest";
import { parseConfig } from "../../../src/config/load.js";
import { ConfigError } from "../../../src/config/config-error.js";

/** The first lines of every configuration. */
export const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/** Parses a configuration without its first lines. */
export function parse(body: string) {
  return parseConfig(HEAD + body, "proxy.yaml");
}

/** Returns "path: message" for every problem of a whole configuration, all of which the error's text has. */
export function problemsOf(text: string): string[] {
  try {
    parseConfig(text, "proxy.yaml");
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    expect(error.code).toBe("ECONFIG");
    for (const { path, message } of error.problems) {
      expect(error.message).toContain("proxy.yaml");
      expect(error.message).toContain(path === "" ? message : `${path}: ${message}`);
    }
    return error.problems.map(({ path, message }) => `${path}: ${message}`);
  }
  return [];
}
