import { strideOf } from "../../kernel/element-batch.js";
import { KernelError } from "../../kernel/errors.js";
import type { ElementBatch, Op } from "../../kernel/kernel.js";

/** NFT_NAME_MAXLEN - 1 */
const MAX_NAME = 255;
/** NFT_DATA_VALUE_MAXLEN */
const MAX_LENGTH = 64;

function invalid(index: number, field: string, reason: string): KernelError {
  return new KernelError("invalid", `operation ${index}: ${field} ${reason}`, { action: "commit" });
}

function checkName(index: number, field: string, name: string): void {
  const bytes = Buffer.byteLength(name);
  if (bytes === 0 || bytes > MAX_NAME) throw invalid(index, field, `must be 1 to ${MAX_NAME} bytes long`);
  if (name.includes("\0")) throw invalid(index, field, "must not contain NUL");
}

function checkBatch(index: number, batch: ElementBatch): void {
  if (batch.keyLen < 1 || batch.keyLen > MAX_LENGTH)
    throw invalid(index, "elements.keyLen", `must be 1 to ${MAX_LENGTH}`);
  if (batch.dataLen < 0 || batch.dataLen > MAX_LENGTH)
    throw invalid(index, "elements.dataLen", `must be 0 to ${MAX_LENGTH}`);
  const stride = strideOf(batch);
  if (batch.bytes.length !== batch.count * stride)
    throw invalid(index, "elements.bytes", `must be ${batch.count} records of ${stride} bytes`);
  const { verdicts } = batch;
  if (verdicts === undefined) return;
  if (batch.dataLen !== 4) throw invalid(index, "elements.dataLen", "must be 4 for a verdict map");
  const at = batch.keyLen * (batch.keyEnd ? 2 : 1);
  const view = new DataView(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  for (let record = 0; record < batch.count; record++) {
    if (view.getUint32(record * stride + at, true) >= verdicts.length)
      throw invalid(index, "elements.bytes", `record ${record} names no verdict`);
  }
}

/** Rejects what cannot be encoded, before anything is sent. Throws KernelError "invalid". */
export function checkOps(ops: readonly Op[]): void {
  ops.forEach((op, index) => {
    checkName(index, "table", op.table);
    if ("chain" in op && op.chain !== undefined) checkName(index, "chain", op.chain);
    if ("set" in op) checkName(index, "set", op.set);
    if (op.kind === "elements" && op.op !== "flush") checkBatch(index, op.elements);
  });
}

const HEADER = 20;
const ATTRIBUTE = 4;
const padded = (bytes: number): number => (bytes + 3) & ~3;

/** The approximate size of the operation on the wire; exact for keys and data. */
export function sizeOf(op: Op): number {
  const name = padded(op.table.length + 1) + ATTRIBUTE;
  if (op.kind === "elements" && op.op !== "flush") {
    const { keyLen, keyEnd, dataLen, count } = op.elements;
    const nested = (bytes: number): number => padded(bytes) + 2 * ATTRIBUTE;
    return (
      HEADER +
      name +
      count * (ATTRIBUTE + nested(keyLen) + (keyEnd ? nested(keyLen) : 0) + (dataLen > 0 ? nested(dataLen) : 0))
    );
  }
  if (op.kind === "rule" && "exprs" in op) return HEADER + 2 * name + op.exprs.length * 48;
  return HEADER + 2 * name;
}
