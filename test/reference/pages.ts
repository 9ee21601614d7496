/** The generated pages of the documentation. */
import { fieldClaims, fieldsPage } from "./fields-page.ts";
import { metricsPage } from "./metrics-page.ts";
import { statementClaims, statementsPage } from "./statements-page.ts";

import type { Claim } from "./nft-text.ts";

/** Returns the text of each page by its name in docs/. */
export function pages(): Readonly<Record<string, string>> {
  return { "fields.md": fieldsPage(), "statements.md": statementsPage(), "metrics.md": metricsPage() };
}

export { SETS } from "./statement-examples.ts";

/** The rules that the pages name, with their families. */
export function claims(): readonly Claim[] {
  return [...fieldClaims(), ...statementClaims()];
}
