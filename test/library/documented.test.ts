/** The programs in src/nft/README.md and docs/library.md, in a project that has the package, on the real kernel. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Namespace } from "../lab/namespace.ts";
import { documented } from "./documented.ts";

const root = path.resolve(import.meta.dirname, "../..");
// Outside the checkout, so that Node finds the package as in any project.
const project = path.join("/tmp", `nft-proxier-documented-${process.pid}`);
let namespace: Namespace;

beforeAll(async () => {
  mkdirSync(path.join(project, "node_modules"), { recursive: true });
  symlinkSync(path.join(root, "node_modules/@nft-proxier"), path.join(project, "node_modules/@nft-proxier"));
  namespace = await Namespace.create("documented");
});
afterAll(async () => {
  await namespace.destroy();
  rmSync(project, { recursive: true, force: true });
});

test.each(documented())("$section", async ({ program, output }) => {
  const file = path.join(project, "program.mts");
  writeFileSync(file, program);
  const printed = await namespace.mustRun([process.execPath, file]);
  expect(printed).toBe(output);
});
