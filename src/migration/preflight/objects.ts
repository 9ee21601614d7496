/** Checks the effect of the cluster's objects on this node. Pure. */
import { counted } from "../../base/counted.js";
import { FAMILY_NAMES } from "../../base/ip-families.js";
import type { IpFamily } from "../../base/ip.js";
import type { Problem, ServedCounts, ServicePortView } from "../../model/service-port-view.js";
import type { ServiceModel } from "../../model/service-model.js";
import { note, ok, problem, type Said } from "./finding.js";

/** The objects that were read, or why there are none. */
export type ObjectFacts =
  | {
      readonly problems: readonly Problem[];
      readonly lostClaims: readonly Problem[];
      readonly unbalanced: readonly Problem[];
      /** Manifests that cannot be read at all. */
      readonly missing: readonly string[];
      /** Other problems in manifests: "web.yaml: Service default/web: spec.externalIps: unknown field". */
      readonly ignored: readonly string[];
      readonly counts: readonly (ServedCounts & { readonly family: IpFamily })[];
      readonly serviceCIDRs: readonly string[];
      readonly clusterIPs: ReadonlyMap<string, string>;
      /** Views of each service, by family. */
      readonly views: ReadonlyMap<IpFamily, ReadonlyMap<string, readonly ServicePortView[]>>;
    }
  | { readonly away: string };

export function objectFacts(
  model: ServiceModel,
  families: readonly IpFamily[],
  { missing, ignored }: { readonly missing: readonly string[]; readonly ignored: readonly string[] },
): ObjectFacts {
  const { services } = model.takeDirty();
  const views = families.map((family) => {
    const ofFamily = services.map((service) => [service, model.views(family, service)] as const);
    return [family, new Map(ofFamily.filter(([, list]) => list.length > 0))] as const;
  });
  return {
    problems: [...model.problems()],
    lostClaims: [...model.lostClaims()],
    unbalanced: [...model.unbalanced()],
    missing,
    ignored,
    serviceCIDRs: families.flatMap((family) => model.serviceCIDRs(family)),
    clusterIPs: model.clusterIPs(),
    counts: families.map((family) => ({ family, ...model.counts(family) })),
    views: new Map(views),
  };
}

/** Maximum number of names for one kind of problem. */
const MOST_NAMED = 10;

export function checkObjects(facts: ObjectFacts): Said[] {
  if ("away" in facts) {
    const remedy = "name a manifest directory with --manifests, or the API server with --config or --kubeconfig";
    return [note(`services were not checked: ${facts.away}`, remedy)];
  }
  const { problems, lostClaims, unbalanced, missing, ignored, counts } = facts;
  const text = ({ kind, object, field, reason }: Problem, what: string): string =>
    `${kind} ${object}: ${field} ${what}: ${reason}`;
  const served = counts.map(
    ({ family, services, endpoints }) =>
      `${counted(services, "service")} with ${counted(endpoints, "endpoint")} over ${FAMILY_NAMES[family]}`,
  );
  return [
    ...missing.map((file) =>
      problem(
        `manifest ${file} cannot be read, so nothing in it would be served`,
        "run `nft-proxier validate` to see why",
      ),
    ),
    ...few(ignored, ["part of a manifest is ignored", "parts of manifests are ignored"], (what) =>
      problem(`manifest ${what}; this part is ignored`, "run `nft-proxier validate` to see where"),
    ),
    ...few(problems, ["field cannot be served", "fields cannot be served"], (one) =>
      problem(text(one, "cannot be served as written"), "correct or remove the field"),
    ),
    ...few(lostClaims, ["claim belongs to another service", "claims belong to other services"], (one) =>
      note(text(one, "is not served"), "give one of the two services another address or port"),
    ),
    ...few(unbalanced, ["annotation has no effect", "annotations have no effect"], (one) =>
      note(text(one, "has no effect"), "remove the annotation, or split the service"),
    ),
    ok(`nft-proxier would serve ${served.join(" and ")}`),
  ];
}

function few<T>(all: readonly T[], [more, manyMore]: readonly [string, string], said: (one: T) => Said): Said[] {
  const first = all.slice(0, MOST_NAMED).map(said);
  const [one] = first;
  if (one === undefined || all.length <= MOST_NAMED) return first;
  return [...first, { level: one.level, what: counted(all.length - MOST_NAMED, `more ${more}`, `more ${manyMore}`) }];
}
