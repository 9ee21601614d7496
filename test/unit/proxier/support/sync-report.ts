import type { SyncReport } from "../../../../src/proxier/observer.js";

/** An accepted write of the IPv4 table that changed no service. */
export const WRITTEN: SyncReport = {
  family: "ip",
  ok: true,
  full: false,
  ms: 1,
  settled: true,
  triggers: [],
  services: [],
};
