import { isObject, list, oneOf, optional, type Shape, value } from "../../base/shape.js";
import type { Expr } from "../kernel/kernel.js";
import { EXPR_TYPES } from "../kernel/normalize.js";
import { GIVEN_TEXT } from "../printing/statement-text.js";
import { kind } from "./kind.js";

const exprType = oneOf(...EXPR_TYPES);
/** Only the type is checked: the kernel checks the other keys. */
const expression: Shape<Expr> = {
  expected: 'a kernel expression, with "type"',
  find(path, given) {
    if (!isObject(given)) return { path, expected: expression.expected, value: given };
    return exprType.find(`${path}, type`, given["type"]);
  },
};

const exprs: Shape<readonly Expr[]> = { ...list(expression), expected: "a list of kernel expressions" };

export const RAW = {
  /** The kernel's own expressions, compared as the kernel returns them. `text`: what nft says; without it, the table cannot be printed. */
  raw: kind(
    {
      exprs,
      text: optional(
        value<string>("nft's text, in one line", (given) => typeof given === "string" && !/[\n\r\0]/.test(given)),
      ),
    },
    ({ exprs: given, text }, { isForText }) => ({
      exprs: isForText === true ? [{ type: "opaque", name: GIVEN_TEXT, data: Buffer.from(text ?? "") }] : given,
      isUnprintable: text === undefined,
    }),
  ),
};
