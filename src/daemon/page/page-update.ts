/** What the status page is sent at /status/stream, every two seconds while it is looked at. */
import type { StatusEvent, StatusReport } from "../../observe/status-report.js";
import type { WriteBucket } from "./write-history.js";

export interface PageUpdate {
  /** Unix ms, of the node. */
  readonly now: number;
  readonly status: StatusReport;
  /** Those of the last ten minutes at first, then those that changed. */
  readonly writes: readonly WriteBucket[];
  /** All that are kept; absent: as before. */
  readonly events?: readonly StatusEvent[];
}

/** Of /status/v1/explain. */
export interface PageExplanation {
  /** As the command prints it. */
  readonly text: string;
}
