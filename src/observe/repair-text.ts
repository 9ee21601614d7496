import { durationText } from "../base/duration-text.js";
import { FAMILY_NAMES } from "../base/ip-families.js";
import { TABLE_DELETED } from "../nft/engine-exports.js";
import type { LastRepair } from "./status-report.js";

/** "nft (pid 8873) deleted the IPv4 table 5s ago; repaired in 180ms". @param when " 5s ago", or "". */
export function repairText({ family, by, changes, ms }: LastRepair, when = ""): string {
  const who = by.join(", ") || "another process";
  const table = `the ${FAMILY_NAMES[family]} table${when}`;
  const deleted = changes.length === 1 && changes[0] === TABLE_DELETED;
  const did = deleted ? `${who} deleted ${table}` : `${who} changed ${table}: ${firstOf(changes)}`;
  return `${did}; repaired in ${durationText(ms)}`;
}

/** "a, b, c and 4 more". */
export function firstOf(words: readonly string[]): string {
  return words.length <= 3 ? words.join(", ") : `${words.slice(0, 3).join(", ")} and ${words.length - 3} more`;
}
