/**
 * Reports the reason of a failed test at once: vitest's own reporter does so at the end, which a tier that is killed for its time never
 * reaches.
 */
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
