/** The generated pages of the documentation. */
import { chartPage } from "./chart-page.ts";
import { fieldClaims, fieldsPage } from "./fields-page.ts";
import { metricsPage } from "./metrics-page.ts";
import { statementClaims, statementsPage } from "./statements-page.ts";

import type { Claim } from "./nft-text.ts";

/** Returns the text of each page by its path in the checkout. */
export function pages(): Readonly<Record<string, string>> {
  return {
    "deploy/chart/README.md": chartPage(),
    "docs/fields.md": fieldsPage(),
    "docs/metrics.md": metricsPage(),
    "docs/statements.md": statementsPage(),
  };
}

export { SETS } from "./statement-examples.ts";

/** The rules that the pages name, with their families. */
export function claims(): readonly Claim[] {
  return [...fieldClaims(), ...statementClaims()];
}
