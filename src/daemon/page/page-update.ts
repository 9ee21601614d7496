/** Data for the status page. /status/stream sends an update every two seconds while the page is visible. */
import type { StatusEvent, StatusReport } from "../../observe/status-report.js";
import type { WriteBucket } from "./write-history.js";

export interface PageUpdate {
  /** The node's Unix time, ms. */
  readonly now: number;
  readonly status: StatusReport;
  /** In the first update, the buckets of the last ten minutes. Later, the changed buckets. */
  readonly writes: readonly WriteBucket[];
  /** All kept events. Absent if unchanged. */
  readonly events?: readonly StatusEvent[];
}

/** The answer of /status/v1/explain. */
export interface PageExplanation {
  /** As the command prints it. */
  readonly text: string;
}
