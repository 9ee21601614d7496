/** Says why a test failed as soon as it did: vitest's own reporter tells at the end, which a tier that is killed for its time does not see. */
import path from "node:path";
import type { Reporter, TestCase } from "vitest/node";
import { root } from "./checks.ts";

export default class FailureReporter implements Reporter {
  onTestCaseResult(test: TestCase): void {
    const { state, errors = [] } = test.result();
    if (state !== "failed") return;
    const reasons = errors.map(({ message, diff }) => (diff === undefined ? message : `${message}\n${diff}`));
    process.stdout.write(
      `\nfailed: ${path.relative(root, test.module.moduleId)}: ${test.fullName}: ${reasons.join("\n")}\n`,
    );
  }
}
