/** A report on a node, as text, JSON or YAML. */
import { counted } from "../../base/counted.js";
import { columns, linesText } from "../../base/columns.js";
import { type Finding, type Level, LEVELS } from "./finding.js";

/** Version of the report in JSON and YAML. Fields may be added, but none may change or be removed. */
export const KIND = { apiVersion: "nft-proxier.dev/v1", kind: "PreflightReport" } as const;

export interface PreflightReport {
  readonly apiVersion: (typeof KIND)["apiVersion"];
  readonly kind: (typeof KIND)["kind"];
  readonly nodeName: string;
  readonly version: string;
  readonly kernel: string;
  /** Whether none of the findings is a problem. Covers only the checks that ran. */
  readonly ready: boolean;
  /** Checks that were not made. Empty if all were. */
  readonly unchecked: readonly string[];
  readonly findings: readonly Finding[];
}

export function reportText({ nodeName, findings, ready, unchecked }: PreflightReport): string {
  const rows = findings.flatMap(({ level, area, what, remedy }) => [
    [level.toUpperCase(), area, what],
    ...(remedy === undefined ? [] : [["", "", `fix: ${remedy}`]]),
  ]);
  const count = (level: Level): string => {
    const number = findings.filter((finding) => finding.level === level).length;
    return counted(number, level, level === "ok" ? level : undefined);
  };
  const lacking = unchecked.length === 0 ? "" : ` (not checked: ${unchecked.join(", ")})`;
  const found = unchecked.length === 0 ? "no obstacles" : "the checks that ran found no obstacles";
  const end = `${ready ? found : "something would fail or be lost"}${lacking}`;
  return linesText([...columns(rows), "", `${nodeName}: ${LEVELS.map(count).join(", ")}: ${end}; nothing was changed`]);
}
