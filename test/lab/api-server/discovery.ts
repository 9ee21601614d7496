/** Requests that a client makes before it reads objects: versions, groups, resources, health. */
import { apiVersionOf, groupPath, RESOURCES } from "./resources.ts";

const SERVER_VERSION = {
  major: "1",
  minor: "36",
  gitVersion: "v1.36.0",
  gitTreeState: "clean",
  platform: "linux/amd64",
};

/** Returns JSON or text for a path that is not a resource's. Returns undefined if the path is unknown. */
export function answerDiscovery(path: string): object | string | undefined {
  switch (path) {
    case "/version":
      return SERVER_VERSION;
    case "/livez":
    case "/readyz":
    case "/healthz":
      return "ok";
    case "/api":
      return { kind: "APIVersions", versions: ["v1"], serverAddressByClientCIDRs: [] };
    case "/apis":
      return { kind: "APIGroupList", apiVersion: "v1", groups: groups() };
    default:
      return resourceList(path);
  }
}

function groups(): object[] {
  const named = RESOURCES.filter(({ group }) => group !== "");
  return named.map((resource) => {
    const version = { groupVersion: apiVersionOf(resource), version: resource.version };
    return { name: resource.group, versions: [version], preferredVersion: version };
  });
}

function resourceList(path: string): object | undefined {
  const here = RESOURCES.filter((resource) => groupPath(resource) === path);
  if (here[0] === undefined) return undefined;
  const resources = here.map(({ plural, kind, namespaced }) => ({
    name: plural,
    singularName: kind.toLowerCase(),
    namespaced,
    kind,
    verbs: ["create", "delete", "get", "list", "patch", "update", "watch"],
  }));
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion: apiVersionOf(here[0]), resources };
}
