/**
 * Tells vitest's results one by one as they come, a JSON object per line, into the file that NFT_PROXIER_REPORT names: a
 * guest that hangs has told everything up to there.
 */
import { appendFileSync } from "node:fs";
import path from "node:path";
import type { Reporter, TestCase, TestModule, TestSpecification } from "vitest/node";
import { root } from "../checks.ts";
import type { GuestEvent } from "./guest.ts";

function tell(event: GuestEvent): void {
  appendFileSync(process.env["NFT_PROXIER_REPORT"] ?? "/dev/stdout", `${JSON.stringify(event)}\n`);
}

/** The first lines are what a reader needs; the console has the rest. */
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
      // A hook that failed is told of by its group alone: the group's tests are then no more than skipped.
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
