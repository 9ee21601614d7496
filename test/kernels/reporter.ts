/**
 * Writes vitest's results one by one as they come, a JSON object per line, to the file named by NFT_PROXIER_REPORT. If
 * a guest hangs, everything up to that point has been reported.
 */
import { appendFileSync } from "node:fs";
import path from "node:path";
import type { Reporter, TestCase, TestModule, TestSpecification } from "vitest/node";
import { root } from "../checks.ts";
import type { GuestEvent } from "./guest.ts";

function tell(event: GuestEvent): void {
  appendFileSync(process.env["NFT_PROXIER_REPORT"] ?? "/dev/stdout", `${JSON.stringify(event)}\n`);
}

/** A reader needs only the first lines; the console has the rest. */
function excerpt(text: string): string {
  return text.length > 2000 ? `${text.slice(0, 2000)} …` : text;
}

export default class LineReporter implements Reporter {
  onTestRunStart(specifications: readonly TestSpecification[]): void {
    tell({ event: "files", files: specifications.map(({ moduleId }) => path.relative(root, moduleId)) });
  }

  onTestModuleCollected(module: TestModule): void {
    const file = path.relative(root, module.moduleId);
    tell({ event: "file", file, tests: [...module.children.allTests()].length });
  }

  onTestCaseResult(test: TestCase): void {
    const { state, errors = [] } = test.result();
    if (state === "pending") return;
    const message = excerpt(
      errors
        .flatMap((error) => [error.message, error.diff ?? ""])
        .filter((text) => text !== "")
        .join("\n"),
    );
    const milliseconds = Math.round(test.diagnostic()?.duration ?? 0);
    tell({
      event: "test",
      file: path.relative(root, test.module.moduleId),
      name: test.fullName,
      state,
      message,
      milliseconds,
    });
  }

  onTestModuleEnd(module: TestModule): void {
    const milliseconds = Math.round(module.diagnostic().duration);
    const message = excerpt(
      // Only the group reports a failed hook: its tests are merely skipped.
      [module, ...module.children.allSuites()]
        .flatMap((group) => group.errors())
        .map((error) => error.message)
        .join("\n"),
    );
    tell({
      event: "file-end",
      file: path.relative(root, module.moduleId),
      state: module.state(),
      passed: [...module.children.allTests("passed")].length,
      message,
      milliseconds,
    });
  }
}
