/** The operations of a plan as commands of `nft -f`. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { batchLayout } from "../kernel/element-batch.js";
import type { ElementBatch, Op, TableRef } from "../kernel/kernel.js";
import { readU32 } from "../bytes/bytes.js";
import { commentsIn } from "../elements/comments.js";
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
import type { FieldType } from "../language/fields/field-types.js";
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
      return command(`element ${place} ${op.set} { ${elementsText(op.elements, spec).join(", ")} }`);
    }
    case "object": {
      const key = keyOfType(op.objType, op.object);
      const object = desired.objects.get(key);
      if (op.op === "add" && object !== undefined)
        return declaration(op, { objects: new Map([[key, { ...object, data: op.data }]]) });
      return command(`${key.slice(0, -op.object.length)}${place} ${op.object}`);
    }
    case "flowtable":
      return command(`flowtable ${place} ${op.flowtable}`);
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
  const catchAll = catchAllIn(batch);
  const { stride, data, timeout, expiration } = batchLayout(batch);
  const { bytes } = batch;
  const comments = commentsIn(batch);
  const objects = new Map(batch.extras?.map(({ record, object }) => [record, object]));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: batch.count }, (_, record) => {
    const at = record * stride;
    const number = (column: number): number => (column < 0 ? 0 : Number(view.getBigUint64(at + column, LITTLE_ENDIAN)));
    const value = bytes.subarray(at + data, at + data + batch.dataLen);
    const key = printKey(spec, record === catchAll ? CATCH_ALL : bytes.subarray(at, at + batch.keyLen));
    const note = timesText(number(timeout), number(expiration)) + commentText(comments.get(record));
    const object = objects.get(record);
    return key + note + (object === undefined ? (data < 0 ? "" : dataText(value, batch, spec)) : ` : "${object}"`);
  });
}

function commentText(comment: string | undefined): string {
  return comment === undefined ? "" : ` comment "${comment}"`;
}

function timesText(timeoutMs: number, leftMs: number): string {
  if (timeoutMs === 0) return "";
  return ` timeout ${durationText(BigInt(timeoutMs))}${leftMs === 0 ? "" : ` expires ${durationText(BigInt(leftMs))}`}`;
}

function dataText(value: Uint8Array, { verdicts }: ElementBatch, { data }: SetSpec): string {
  if (verdicts !== undefined) return ` : ${verdictText(verdicts[readU32(value, 0)])}`;
  return Array.isArray(data) ? ` : ${printPacked(data as readonly FieldType[], value)}` : "";
}
