/** Files of one test. */
import { mkdtempSync, rmSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { onTestFinished } from "vitest";

/** Creates a directory that is removed after the current test. Call it in a test, or in `beforeEach`. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "nft-proxier-test-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Writes a file below `root`, and creates its directories. */
export async function putFile(root: string, path: string, text: string): Promise<void> {
  const file = join(root, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text);
}
