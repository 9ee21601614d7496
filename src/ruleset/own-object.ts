import type { TableDeclarations } from "../table/table-exports.js";
import type { SkeletonOptions } from "./skeleton.js";

export type OwnChainOptions = Pick<SkeletonOptions, "family" | "masqueradeBit" | "nodeIP">;

/** A chain or set of a service port's own; what is in it is not made unless it is declared. */
export interface OwnObject {
  readonly kind: "chain" | "set";
  readonly name: string;
  readonly declare: (table: TableDeclarations, options: OwnChainOptions) => void;
}
