/** The operations of a plan as commands of `nft -f`. */
import { type Element, elementsOf } from "../kernel/element-batch.js";
import type { ElementBatch, Op, TableRef } from "../kernel/kernel.js";
import { TrackedElements } from "../elements/tracked-elements.js";
import { VerdictRegistry } from "../elements/verdict-registry.js";
import { verdictText } from "../language/verdicts.js";
import { CATCH_ALL } from "../elements/rows.js";
import { durationText } from "../printing/value-text.js";
import { catchAllIn, rangeRows } from "../language/intervals.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { keyOfType } from "../language/object-kinds.js";
import { renderTable } from "./print.js";
import { printKey, printPacked } from "../elements/print-key.js";
import { dataFields } from "../language/schema.js";
import type { SetSpec } from "../language/set-spec.js";
import { printRule } from "../statements/lower-rule.js";
import type { DesiredState } from "./desired-state.js";
import type { Counts, PlannedOp } from "./plan.js";

/** The changes that an apply would make now. */
export interface TablePlan {
  /** In the kernel's terms, and in an order that it accepts. Empty if the kernel holds the desired state. */
  readonly operations: readonly Op[];
  /** Number of objects to add and delete. */
  readonly counts: Counts;
  /** The operations as commands for `nft -f` (1.0.6 or newer). */
  readonly text: string;
}

/** Returns the commands of these operations, one or more lines each. */
export function planText(ops: readonly PlannedOp[], desired: DesiredState, isMap: (set: string) => boolean): string {
  return ops.flatMap((planned) => commandOf(planned, desired, isMap) ?? []).join("");
}

/** Returns undefined for anonymous sets and their elements, which are part of their rules' text. */
function commandOf(
  { op, origin }: PlannedOp,
  desired: DesiredState,
  isMap: (set: string) => boolean,
): string | undefined {
  const { family, table } = op;
  const command = (what: string): string => `${op.op} ${what}\n`;
  const place = `${family} ${table}`;
  switch (op.kind) {
    case "table":
      return op.op === "add" ? declaration(op, { comment: commentOf(op.userdata) }) : command(`table ${place}`);
    case "chain": {
      const spec = desired.chains.get(op.chain)?.spec;
      if (op.op !== "add" || spec === undefined) return command(`chain ${place} ${op.chain}`);
      return declaration(op, { chains: new Map([[op.chain, { spec: { ...spec, rules: [] }, rules: [] }]]) });
    }
    case "rule": {
      if (op.op === "flush") return `flush chain ${place} ${op.chain}\n`;
      if (op.op === "delete") return command(`rule ${place} ${op.chain} handle ${op.handle}`);
      const at = "position" in op && op.position !== undefined ? ` handle ${op.position}` : "";
      const rule = desired.chains.get(op.chain)!.spec.rules[origin.ruleIndex!];
      return command(`rule ${place} ${op.chain}${at} ${printRule(rule, { family, setSpec: desired.setSpec })}`);
    }
    case "set": {
      if (op.op !== "add") return command(`${isMap(op.set) ? "map" : "set"} ${place} ${op.set}`);
      const spec = desired.setSpec(op.set);
      if (spec === undefined) return undefined;
      return declaration(op, { sets: new Map([[op.set, new TrackedElements({ ...spec, size: op.size })]]) });
    }
    case "elements": {
      const spec = desired.setSpec(op.set);
      if (op.op === "flush") return `flush ${isMap(op.set) ? "map" : "set"} ${place} ${op.set}\n`;
      if (spec === undefined) return undefined;
      // nft 1.0.6 does not know `destroy`. A catch-all element may be gone, and nft 1.0.6 could not delete it anyway.
      const verb = op.op === "destroy" && catchAllIn(op.elements) < 0 ? "delete" : op.op;
      return `${verb} element ${place} ${op.set} { ${elementsText(op.elements, spec).join(", ")} }\n`;
    }
    case "object": {
      const key = keyOfType(op.objType, op.object);
      const object = desired.objects.get(key);
      if (op.op === "add" && object !== undefined)
        return declaration(op, { objects: new Map([[key, { ...object, data: op.data }]]) });
      return command(`${key.slice(0, -op.object.length)}${place} ${op.object}`);
    }
  }
}

type Part = Partial<Pick<DesiredState, "chains" | "sets" | "objects">> & { readonly comment?: string | undefined };

/** A block that adds one object. nft adds what it lacks. */
function declaration(
  ref: TableRef,
  { comment, chains = new Map(), sets = new Map(), objects = new Map() }: Part,
): string {
  const none = { verdicts: new VerdictRegistry(), setSpec: () => undefined };
  const text = renderTable({ family: ref.family, table: ref.table }, comment, { chains, sets, objects, ...none });
  // Without the lines that delete the table.
  return text.slice(text.indexOf("\ntable ") + 1);
}

function elementsText(elements: ElementBatch, spec: SetSpec): string[] {
  const batch = spec.interval === true ? rangeRows(elements).rows : elements;
  return Array.from(elementsOf(batch), (element) => {
    const key = printKey(spec, element.catchall ? CATCH_ALL : element.key);
    const note = timesText(element.timeout, element.expiration) + commentText(commentOf(element.userdata));
    return key + note + dataText(element, spec);
  });
}

function commentText(comment: string | undefined): string {
  return comment === undefined ? "" : ` comment "${comment}"`;
}

function timesText(timeoutMs: number, leftMs: number): string {
  if (timeoutMs === 0) return "";
  return ` timeout ${durationText(BigInt(timeoutMs))}${leftMs === 0 ? "" : ` expires ${durationText(BigInt(leftMs))}`}`;
}

function dataText({ object, verdict, data }: Element, spec: SetSpec): string {
  if (object !== undefined) return ` : "${object}"`;
  if (verdict !== undefined) return ` : ${verdictText(verdict)}`;
  return data === undefined ? "" : ` : ${printPacked(dataFields(spec), data)}`;
}
