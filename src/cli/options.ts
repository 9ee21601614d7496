import type { LogLevel } from "../base/logger.js";

/** Options of commands that read manifests. */
interface CommonOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly logLevel: LogLevel;
}

/** Options of commands that serve manifests, or print their ruleset. */
export interface ManifestOptions extends CommonOptions {
  readonly allowIncomplete?: boolean;
}

export interface ValidateOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly output: "text" | "json";
}

export interface StatusOptions {
  readonly output: "text" | "json" | "yaml";
  readonly events?: boolean;
  /** Keep running, and print changes. */
  readonly watch?: boolean;
  /** Default: the socket of this network namespace's daemon. */
  readonly socket?: string;
}

/** Columns by which services can be sorted. */
export const SORT_BY = ["name", "state", "ready", "connections", "rate"] as const;
export type SortBy = (typeof SORT_BY)[number];

export interface ServicesOptions {
  readonly output: "table" | "wide" | "json" | "yaml" | "name";
  /** Only services of this namespace. Default: all namespaces. */
  readonly namespace?: string;
  /** Only service ports in these states. */
  readonly state?: readonly string[];
  /** Default: by namespace, name and port. */
  readonly sortBy?: SortBy;
  /** False for `--no-headers`. */
  readonly headers?: boolean;
  /** Keep running, and print changes. */
  readonly watch?: boolean;
  readonly socket?: string;
}

export interface TopOptions {
  /** Only services of this namespace. Default: all namespaces. */
  readonly namespace?: string;
  /** Number of screens. Default: unlimited on a terminal, otherwise 1. */
  readonly count?: number;
  /** Time between two screens, ms. */
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

export interface PageOptions {
  readonly socket?: string;
}

export interface DiagnoseOptions {
  /** Path, or "-" for stdout. Default: a name with host and time, in the working directory. */
  readonly output?: string;
  readonly socket?: string;
}

export interface ExplainOptions {
  readonly output: "text" | "json";
  /** Namespace of services that are named without one. Default: all namespaces are searched. */
  readonly namespace?: string;
  /** Incoming interface. */
  readonly in?: string;
  readonly socket?: string;
}

export interface TraceOptions {
  /** Namespace of a service that is named without one. Default: all namespaces are searched. */
  readonly namespace?: string;
  readonly output: "text" | "json";
  /** Stop after this many lines. */
  readonly count?: number;
  /** Stop after this time, ms. 0: only a signal stops it. */
  readonly for: number;
  /** Print only connections with these outcomes. None: all. */
  readonly refused?: boolean;
  readonly unanswered?: boolean;
  readonly dropped?: boolean;
  readonly allPackets?: boolean;
  /** Trace even if the words may select all traffic. */
  readonly force?: boolean;
  readonly socket?: string;
}
