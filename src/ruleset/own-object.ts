import type { TableDeclarations } from "../nft/engine-exports.js";
import type { SkeletonOptions } from "./skeleton.js";

export type OwnChainOptions = Pick<SkeletonOptions, "family" | "masqueradeBit" | "nodeIP">;

/** A chain or set that belongs to one service port. Its content is only built when it is declared. */
export interface OwnObject {
  readonly kind: "chain" | "set";
  readonly name: string;
  readonly declare: (table: TableDeclarations, options: OwnChainOptions) => void;
}
