/** Errors in a configuration. */

/** One error in a configuration. */
export interface ConfigProblem {
  /** "nftables.masqueradeBit"; "" for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** The configuration cannot be used. Contains all its errors at once. */
export class ConfigError extends Error {
  readonly code = "ECONFIG";
  readonly problems: readonly ConfigProblem[];

  constructor(file: string, problems: readonly ConfigProblem[], options?: ErrorOptions) {
    const lines = problems.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
    super(lines.length === 1 ? `${file}: ${lines[0]}` : `${file}:\n  ${lines.join("\n  ")}`, options);
    this.name = "ConfigError";
    this.problems = problems;
  }
}
