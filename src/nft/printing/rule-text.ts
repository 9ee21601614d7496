/**
 * Prints a rule as `nft -s list ruleset` does, from the kernel's expressions. What the text cannot say is "…", so that it is never the text of another
 * rule. Facts about the text: nft 1.0.6.
 */
import { numberToBytes, bytesToNumber } from "../bytes/ip-ranges.js";
import { BitwiseOp, CmpOp, SocketKey, VERDICT_REGISTER } from "../kernel/constants.js";
import type { Expr, Family } from "../kernel/kernel.js";
import { type Bound, compare, compareRange, lookUp } from "./conditions.js";
import { otherField } from "./field-index.js";
import type { Reading } from "./operands.js";
import { PacketContext } from "./packet-context.js";
import { type BinaryOperator, type Of, Registers, type Term } from "./registers.js";
import type { ListedSet } from "./set-text.js";
import { statementText } from "./statement-text.js";
import type { ValueStyle } from "./value-text.js";

export interface RuleTextOptions extends ValueStyle {
  readonly family: Family;
  /** The sets that the rule names, and the elements of anonymous ones. Without them, the text has `{ … }`, and a key may end in "…". */
  readonly set?: (name: string, id: number | undefined) => ListedSet | undefined;
}

/** "tcp dport 8080 drop" */
export function ruleText(exprs: readonly Expr[], { family, set = () => undefined, ...style }: RuleTextOptions): string {
  const reading: Reading = {
    context: new PacketContext(family, style.isPortable),
    registers: new Registers(),
    style,
    set,
  };
  let last: Bound | undefined;
  for (const expr of exprs) {
    const before = reading.context.lines.length;
    last = read(expr, reading, last);
    const isEnd = reading.context.lines.length > before && !(last?.op === CmpOp.gte);
    if (style.isPortable === true && isEnd) reading.registers.clear();
  }
  return reading.context.text;
}

function read(expr: Expr, reading: Reading, last: Bound | undefined): Bound | undefined {
  const { context, registers } = reading;
  if (expr.type === "cmp") return compare(expr, reading, last);
  if (expr.type === "range") compareRange(expr, reading);
  else if (expr.type === "lookup") lookUp(expr, reading);
  else if ("dreg" in expr && expr.dreg !== undefined && expr.dreg !== VERDICT_REGISTER)
    registers.set(expr.dreg, loadedBy(expr, registers));
  else {
    context.add(statementText(expr, reading));
    context.keepConditions();
  }
  // Between the two halves of a range, nft loads the field again at most.
  return "dreg" in expr && expr.type !== "lookup" ? last : undefined;
}

/** Returns the value that an expression writes to its register. */
function loadedBy(expr: Expr, registers: Registers): Term {
  switch (expr.type) {
    case "payload":
      return { kind: "header", load: expr, length: expr.len };
    case "immediate":
      return expr.data instanceof Uint8Array
        ? { kind: "constant", data: expr.data, length: expr.data.length }
        : { kind: "unknown", length: 0 };
    case "bitwise":
      return calculated(expr, registers.get(expr.sreg));
    case "byteorder": {
      const of = registers.get(expr.sreg);
      return { kind: "swapped", of, op: expr.op, length: expr.len };
    }
    case "hash": {
      const of = expr.sreg === undefined ? undefined : registers.get(expr.sreg, expr.len);
      return { kind: "hash", hash: expr, of, length: 4 };
    }
    default:
      return { kind: "field", load: expr, length: lengthOfField(expr) };
  }
}

/** Bytes that a load writes. */
function lengthOfField(expr: Expr): number {
  if (expr.type === "exthdr") return expr.len ?? 0;
  if (expr.type === "socket" && expr.key === SocketKey.cgroupv2) return 8;
  return otherField(expr)?.form.length ?? 4;
}

function calculated({ op = BitwiseOp.maskXor, mask, xor, data, len, sreg2 }: Of<"bitwise">, of: Term): Term {
  const term = (operator: BinaryOperator, operand: Uint8Array, from: Term): Term => {
    return { kind: "binary", operator, of: from, operand, length: len };
  };
  if (sreg2 !== undefined) return { kind: "unknown", length: len };
  if (op === BitwiseOp.lshift || op === BitwiseOp.rshift)
    return term(op === BitwiseOp.lshift ? "<<" : ">>", data ?? new Uint8Array(4), of);
  if (mask === undefined || xor === undefined) return { kind: "unknown", length: len };
  // `(of & mask) ^ xor`: bits that the mask clears and `xor` sets are set.
  const [kept, flipped] = [bytesToNumber(mask), bytesToNumber(xor)];
  const all = (1n << BigInt(len * 8)) - 1n;
  const set = flipped & ~kept & all;
  const steps: readonly (readonly [BinaryOperator, bigint, neutral: bigint])[] = [
    ["&", kept | set, all],
    ["^", flipped & kept, 0n],
    ["|", set, 0n],
  ];
  return steps.reduce(
    (from, [operator, operand, neutral]) =>
      operand === neutral ? from : term(operator, numberToBytes(operand, len), from),
    of,
  );
}
