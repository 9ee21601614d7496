/** Errors in a configuration. */
import { UserError } from "../base/user-error.js";

/** One error in a configuration. */
export interface ConfigProblem {
  /** "nftables.masqueradeBit"; "" for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** The configuration cannot be used. Contains all its errors at once. */
export class ConfigError extends UserError {
  override readonly name = "ConfigError";
  readonly code = "ECONFIG";
  readonly problems: readonly ConfigProblem[];

  constructor(file: string, problems: readonly ConfigProblem[], options?: ErrorOptions) {
    const lines = problems.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
    super(lines.length === 1 ? `${file}: ${lines[0]}` : `${file}:\n  ${lines.join("\n  ")}`, options);
    this.problems = problems;
  }
}
