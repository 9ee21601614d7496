/**
 * The pictures of README.md are of this version. If not, take them again on an idle machine:
 * `PICTURES=write npm run test:page -- pictures`.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { PictureRecord } from "../../page/pictures.js";

const ROOT = join(import.meta.dirname, "../../..");
const IMAGES = join(ROOT, "docs", "images");

const pictures = JSON.parse(readFileSync(join(IMAGES, "pictures.json"), "utf8")) as PictureRecord;
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { version: string };

test("every picture has a record, and is in README.md", () => {
  const files = readdirSync(IMAGES).filter((name) => name !== "pictures.json");
  expect(Object.keys(pictures).toSorted()).toEqual(files.toSorted());
  const shown = [...readFileSync(join(ROOT, "README.md"), "utf8").matchAll(/\]\(docs\/images\/([^)]+)\)/g)];
  expect(shown.map(([, name]) => name).toSorted()).toEqual(files.toSorted());
});

describe.each(Object.entries(pictures))("%s", (name, picture) => {
  test("shows this version", () => {
    expect(picture.version).toBe(version);
  });

  test("is the file whose version was recorded", () => {
    const digest = createHash("sha256")
      .update(readFileSync(join(IMAGES, name)))
      .digest("hex");
    expect(digest).toBe(picture.sha256);
  });
});
