import { UsageError } from "../../../base/user-error.js";
import { compileFilter } from "../../../nft/conntrack/compile-filter.js";
import type { ConntrackFilter, TupleFilter } from "../../../nft/conntrack/conntrack-table.js";
import { KernelError } from "../../../nft/kernel/errors.js";
import type { FilterOptions } from "./filter-options.js";

/** Returns `values` without undefined ones, because a filter rejects properties that are undefined. */
function given<T extends object>(values: T): T {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;
}

function tupleOf(values: TupleFilter): TupleFilter | undefined {
  const tuple = given(values);
  return Object.keys(tuple).length === 0 ? undefined : tuple;
}

/** Converts options to a filter. Throws UsageError if no entry can match them. */
export function filterOf(options: FilterOptions): ConntrackFilter {
  const { family, protocol, state, status, mark, zone, address: addresses } = options;
  const original = tupleOf({
    source: options.src,
    destination: options.dst,
    sourcePort: options.sport,
    destinationPort: options.dport,
  });
  const reply = tupleOf({
    source: options.replySrc,
    destination: options.replyDst,
    sourcePort: options.replySport,
    destinationPort: options.replyDport,
  });
  const filter: ConntrackFilter = given({ family, protocol, state, status, mark, zone, original, reply, addresses });
  try {
    compileFilter(filter, "filter");
  } catch (error) {
    if (!(error instanceof KernelError) || error.code !== "invalid") throw error;
    throw new UsageError(error.message, { cause: error });
  }
  return filter;
}
