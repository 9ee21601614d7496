/** The programs in docs/cookbook.md, and their output as the document shows it. */
import { readFileSync } from "node:fs";
import path from "node:path";

export interface Recipe {
  /** The heading of its section. */
  readonly title: string;
  /** A whole module. */
  readonly program: string;
  /** Commands with their output. */
  readonly runs: readonly { readonly command: readonly string[]; readonly output: string }[];
}

export function recipes(): Recipe[] {
  const text = readFileSync(path.resolve(import.meta.dirname, "../../docs/cookbook.md"), "utf8");
  return text
    .split(/^## /m)
    .slice(1)
    .map((section) => {
      const [title] = section.split("\n", 1);
      const [, program = ""] = /^```js\n(.*?)^```$/ms.exec(section) ?? [];
      const [, shown = ""] = /^```text\n(.*?)^```$/ms.exec(section) ?? [];
      const runs = shown
        .split(/^\$ /m)
        .slice(1)
        .map((run) => {
          const [command, ...output] = run.split("\n");
          return { command: command.split(" "), output: output.join("\n") };
        });
      return { title, program, runs };
    });
}
