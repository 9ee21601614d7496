import type { LogLevel } from "../base/logger.js";

/** What commands that read manifests are given. */
export interface CommonOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly logLevel: LogLevel;
}

/** What commands that serve manifests, or print what would be, are given. */
export interface ManifestOptions extends CommonOptions {
  readonly allowIncomplete?: boolean;
}

export interface ValidateOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly output: "text" | "json";
}

export interface StatusOptions {
  readonly output: "text" | "json";
  readonly events?: boolean;
  /** Default: that of this network namespace. */
  readonly socket?: string;
}

export interface ServicesOptions {
  readonly output: "table" | "wide" | "json" | "yaml" | "name";
  /** False: `--no-headers`. */
  readonly headers?: boolean;
  /** Go on, and print what changes. */
  readonly watch?: boolean;
  readonly socket?: string;
}

export interface TopOptions {
  /** Screens; absent: until it is ended, and one where there is no terminal. */
  readonly count?: number;
  /** Between two of them, ms. */
  readonly interval: number;
  readonly socket?: string;
}

export interface HandoverOptions {
  /** How long the copy serves new connections, ms. */
  readonly for: number;
  /** Remove the copy instead. */
  readonly remove?: boolean;
  readonly logLevel: LogLevel;
}

export interface DiagnoseOptions {
  /** Path; "-": stdout. Default: a name with host and time, in the working directory. */
  readonly output?: string;
  readonly socket?: string;
}

export interface ExplainOptions {
  readonly output: "text" | "json";
  /** Interface that the packet comes in by. */
  readonly in?: string;
  readonly socket?: string;
}

export interface TraceOptions {
  readonly output: "text" | "json";
  /** Ends behind so many packets. */
  readonly count?: number;
  /** Ends behind so long, ms; 0: with a signal alone. */
  readonly for: number;
  /** Print only those that end in a reject or a drop. */
  readonly dropped?: boolean;
  readonly allPackets?: boolean;
  /** Although the words may mean all traffic. */
  readonly force?: boolean;
  readonly socket?: string;
}
