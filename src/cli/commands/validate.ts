import { counted } from "../../base/counted.js";
import { IP_FAMILIES } from "../../base/ip-families.js";
import { defaultConfig } from "../../config/load.js";
import type { Problem } from "../../model/service-port-view.js";
import type { ServiceModel } from "../../model/service-model.js";
import { linesText } from "../../base/columns.js";
import { createLogger } from "../../base/logger.js";
import {
  ManifestDirectoryError,
  type ManifestProblem,
  ManifestSource,
} from "../../objects/manifests/manifest-source.js";
import { FilePositions, type Position } from "../../objects/manifests/positions.js";
import { ModelSink } from "../../model/model-sink.js";
import { ManifestOverlaps } from "./manifest-overlaps.js";
import type { ValidateOptions } from "./manifest-commands.js";
import { decoderFor, nodeName, readConfig } from "../setup.js";
import { writeOut } from "../stdio.js";
import { fitted } from "../text/terminal.js";

/** Version of the JSON report. Fields may be added to it, but not changed or removed. */
const REPORT = { apiVersion: "nft-proxier.dev/v1", kind: "ValidationReport" } as const;

/**
 * error: it cannot be read or served as written, which mostly makes the manifests incomplete. warning: it was read but serves nothing, because
 * another object has it or its service is missing. note: it is skipped by rule, or the kernel delivers nothing to it.
 */
type Severity = "error" | "warning" | "note";

interface Finding {
  readonly severity: Severity;
  /** Name in the directory, or the directory. */
  readonly file: string;
  /** The first line is 1. */
  readonly line?: number;
  readonly column?: number;
  readonly object?: { readonly kind: string; readonly name: string };
  readonly field?: string;
  /** The end of a sentence about the object or its field: "is not served". */
  readonly what: string;
  readonly why: string;
  readonly action: string;
}

/**
 * `validate`: reads the manifests like `run`, without using the kernel, and prints all their problems. Exit code 0 if there are at most notes,
 * 1 for errors or warnings.
 */
export async function validateCommand(options: ValidateOptions): Promise<number> {
  const config =
    options.config === undefined ? defaultConfig() : await readConfig(options.config, await createLogger("warn"));
  const ignore = (): void => undefined;
  const sink = new ModelSink({ families: IP_FAMILIES, node: { nodeName: nodeName(config) }, onProblem: ignore });
  const { model } = sink;
  const overlaps = new ManifestOverlaps(config.clusterCIDRs);
  const source = new ManifestSource({
    ...{ directory: options.manifests, decoder: decoderFor(config), onProblem: ignore, onNote: ignore },
  });
  const findings: Finding[] = [];
  try {
    await source.start({
      upsert: (object) => {
        overlaps.add(object);
        sink.upsert(object);
      },
      remove: (kind, name) => sink.remove(kind, name),
      synced: ignore,
      flush: ignore,
    });
    findings.push(...(await findingsOf(source, { model, overlaps }, options.manifests)));
  } catch (error) {
    if (!(error instanceof ManifestDirectoryError)) throw error;
    const action = "name a directory that can be read";
    findings.push({ severity: "error", file: options.manifests, what: "nothing is read", why: error.message, action });
  } finally {
    await source.stop();
  }
  const valid = findings.every(({ severity }) => severity === "note");
  const served = { ip: model.counts("ip"), ip6: model.counts("ip6") };
  const text =
    options.output === "json"
      ? `${JSON.stringify({ ...REPORT, directory: options.manifests, valid, served, findings }, null, 2)}\n`
      : fitted(linesText([...findings.map(lineOf), summaryOf(findings, served)]));
  await writeOut(text);
  return valid ? 0 : 1;
}

interface Objects {
  readonly model: ServiceModel;
  readonly overlaps: ManifestOverlaps;
}

async function findingsOf(source: ManifestSource, { model, overlaps }: Objects, directory: string): Promise<Finding[]> {
  const files = new Map<string, Promise<FilePositions | undefined>>();
  const positionsIn = (file: string): Promise<FilePositions | undefined> => {
    let places = files.get(file);
    if (places === undefined) files.set(file, (places = FilePositions.open(directory, file)));
    return places;
  };
  const ofObject = async ({ kind, object: name, field }: Omit<Problem, "reason">) => {
    const file = source.fileOf(kind, name) ?? directory;
    const position = await (await positionsIn(file))?.ofField(`${kind} ${name}`, field);
    return { file, ...position, object: { kind, name }, field: field || undefined };
  };

  const found: Finding[] = [];
  const { files: unread, empty } = source.gaps();
  if (empty && unread.length === 0) {
    const action = "name the directory that contains the manifests";
    found.push({
      severity: "error",
      file: directory,
      what: "nothing is served",
      why: "the directory contains no objects",
      action,
    });
  }
  for (const problem of source.problems()) {
    found.push(ofFile(problem, await positionOf(problem, positionsIn)));
  }
  model.takeDirty();
  const kinds = [
    ["error", model.problems(), "cannot be served as written", "correct or remove the field"],
    ["error", overlaps.problems(), "would get no packets", "give services a network that no pod or node uses"],
    ["warning", model.lostClaims(), "is not served", "give one of the two services another address or port"],
    ["warning", model.unbalanced(), "has no effect", "remove the annotation, or split the service"],
    [
      "note",
      model.endpointsAtClusterIPs(),
      "gets no packets",
      "list addresses of pods, or point clients at the other service",
    ],
  ] as const;
  for (const [severity, some, what, action] of kinds) {
    for (const problem of some)
      found.push({ severity, ...(await ofObject(problem)), what, why: problem.reason, action });
  }
  for (const { name, service } of model.straySlices()) {
    // If the Service exists, it has its own finding, or it is deliberately not served (headless, or for another proxy).
    if (source.fileOf("Service", service) !== undefined) continue;
    const field = 'metadata.labels["kubernetes.io/service-name"]';
    const [why, action] = [`there is no Service ${service}`, "add the Service, or correct the label"];
    const where = await ofObject({ kind: "EndpointSlice", object: name, field });
    found.push({ severity: "warning", ...where, what: "has no effect", why, action });
  }
  for (const [kind, { file, place }] of source.skippedKinds) {
    const position = await (await positionsIn(file))?.of(place);
    const why = "only Kubernetes' own Service, EndpointSlice, Node and ServiceCIDR objects are read";
    const what = `${kind} objects are skipped (this is the first)`;
    found.push({ severity: "note", file, ...position, what, why, action: "none needed" });
  }
  return found.toSorted(
    (a, b) => compare(a.file, b.file) || (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0),
  );
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

async function positionOf(
  { file, line, column, place, repeated }: ManifestProblem,
  positionsIn: (file: string) => Promise<FilePositions | undefined>,
): Promise<Position | undefined> {
  if (line !== undefined && column !== undefined) return { line, column };
  if (place !== undefined) return (await positionsIn(file))?.of(place);
  return repeated === undefined ? undefined : (await positionsIn(file))?.ofField(repeated, "");
}

function ofFile(problem: ManifestProblem, position: Position | undefined): Finding {
  const { file, served, reason: why, remedy, repeated, unknown } = problem;
  if (repeated !== undefined) {
    const object = objectOf(repeated);
    return { severity: "warning", file, ...position, object, what: "is not served", why, action: "remove one of them" };
  }
  if (unknown !== undefined) {
    const field = unknown.field === "" ? {} : { field: unknown.field };
    const of = { file, ...position, object: objectOf(unknown.object), ...field };
    return { severity: "error", ...of, what: "is ignored", why, action: "correct its name, or remove it" };
  }
  const what = served === "rest" ? "is not served" : "nothing in the file is served";
  return { severity: "error", file, ...position, what, why, action: remedy ?? "correct or remove it" };
}

/** @param key such as "Service default/web". */
function objectOf(key: string): { readonly kind: string; readonly name: string } {
  const space = key.indexOf(" ");
  return { kind: key.slice(0, space), name: key.slice(space + 1) };
}

function lineOf({ severity, file, line, column, object, field, what, why, action }: Finding): string {
  const where = [file, line, column].filter((part) => part !== undefined).join(":");
  const subject = [object === undefined ? undefined : `${object.kind} ${object.name}`, field];
  const about = [subject.filter((part) => part !== undefined).join(": "), what].join(" ").trimStart();
  return `${where}: ${severity}: ${about}: ${why}. Fix: ${action}`;
}

function summaryOf(findings: readonly Finding[], served: { ip: ServedCounts; ip6: ServedCounts }): string {
  const count = (severity: Severity): string => {
    const number = findings.filter((finding) => finding.severity === severity).length;
    return counted(number, severity);
  };
  const of = ({ services, endpoints }: ServedCounts): string =>
    `${counted(services, "service")} with ${counted(endpoints, "endpoint")}`;
  const counts = [count("error"), count("warning"), count("note")].join(", ");
  return `${counts}; served: ${of(served.ip)} over IPv4, ${of(served.ip6)} over IPv6`;
}

type ServedCounts = ReturnType<ServiceModel["counts"]>;
