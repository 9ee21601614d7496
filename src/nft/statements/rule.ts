/** Rules as typed data, of which the kernel's expressions and nft's text are made. */
import type { BaseChain } from "../language/hooks-and-priorities.js";
import type { Action } from "./actions.js";
import type { FieldMatch } from "./conditions.js";

/** One condition or one action of a rule. */
export type Statement = FieldMatch | Action;

export interface Rule {
  readonly statements: readonly Statement[];
  /** Shown by nft; at most 128 bytes. */
  readonly comment?: string;
}

export interface ChainSpec {
  readonly chain: string;
  /** Absent for a chain that other chains jump to. */
  readonly base?: BaseChain;
  readonly rules: readonly Rule[];
  readonly comment?: string;
}
