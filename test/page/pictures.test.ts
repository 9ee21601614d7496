/** The pictures of README.md can be taken, and show this version. Run with PICTURES=write, the test also replaces them. */
import { cpSync, readFileSync, statSync } from "node:fs";
import { setPriority } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { patience } from "../lab/patience.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";
import { type PictureRecord, takePictures } from "./pictures.ts";

const root = path.resolve(import.meta.dirname, "../..");

/** Bytes. Smaller ones show too little, and larger ones are slow to load. */
const SIZES: Readonly<Record<string, readonly [least: number, most: number]>> = {
  "demo.svg": [10_000, 50_000],
  "status-page.webp": [50_000, 250_000],
};

/** In the demo, a new pod answers its first request within this time. It takes 80 ms on an idle machine. */
const USUAL_MS = 300;

/** Gives this process and its children precedence, if it may, so that other programs hardly affect the figures. */
function preferThisProcess(): void {
  try {
    setPriority(-10);
  } catch {
    // Root in a user namespace may not, and the figures are checked below.
  }
}

test(
  "the demo's output and its page become pictures, which show this version",
  async () => {
    const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")) as { version: string };
    const isWriting = process.env["PICTURES"] === "write";
    if (isWriting) preferThisProcess();
    const directory = temporaryDirectory();
    await takePictures(directory);
    const pictures = JSON.parse(readFileSync(path.join(directory, "pictures.json"), "utf8")) as PictureRecord;
    expect(Object.keys(pictures)).toEqual(Object.keys(SIZES));
    for (const [name, picture] of Object.entries(pictures)) {
      expect([name, picture.version]).toEqual([name, version]);
      const { size } = statSync(path.join(directory, name));
      const [least, most] = SIZES[name];
      expect(size, name).toBeGreaterThan(least);
      expect(size, name).toBeLessThan(most);
    }
    if (!isWriting) return;
    const answered = /first request +at +(\d+) ms/.exec(readFileSync(path.join(directory, "demo.svg"), "utf8"))?.[1];
    expect(Number(answered), "This machine is too busy for the figures in the pictures. Run it again.").toBeLessThan(
      USUAL_MS,
    );
    cpSync(directory, path.join(root, "docs", "images"), { recursive: true });
  },
  patience(600_000),
);
