/** Specifications of sets and maps. */
import type { RecordOf } from "../../base/shape.js";
import type { SET } from "./vocabulary.js";

export interface SetSpec extends RecordOf<typeof SET> {
  /**
   * Deletes undesired elements that a read of the kernel finds (from an earlier run) only after a grace period. Use it if packets may still look them
   * up through a verdict that is deleted in the same transaction. A function selects the elements.
   */
  readonly deferUndesired?: boolean | ((key: Uint8Array) => boolean);
}
