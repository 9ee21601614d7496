/** The programs in src/nft/README.md and docs/library.md, run as a reader runs them. */
import { readFileSync } from "node:fs";
import path from "node:path";

export interface Documented {
  /** The heading of the program's section. */
  readonly section: string;
  /** A whole module. */
  readonly program: string;
  /** The expected output. A comment after `console.log` has it, up to a colon and an explanation. */
  readonly output: string;
}

const PRELUDE = `import { openKernel, Table } from "@nft-proxier/nft";
const kernel = await openKernel();
const table = new Table(kernel, { family: "inet", name: "mine" });
`;
const END = "\nawait table.destroy();\nawait kernel.close();\n";

/** Returns the TypeScript blocks of the documents. A block without imports continues a program that has declared a table. */
export function documented(): Documented[] {
  const texts = ["src/nft/README.md", "docs/library.md"].map((name) =>
    readFileSync(path.resolve(import.meta.dirname, "../..", name), "utf8"),
  );
  return texts
    .flatMap((text) => text.split(/^(?=##)/m))
    .flatMap((section) => {
      const [heading] = section.split("\n", 1);
      return Array.from(section.matchAll(/^```ts\n(.*?)^```$/gms), ([, code = ""]) => ({
        section: heading.replace(/^#+ /, ""),
        program: code.startsWith("import ") ? code : PRELUDE + code + END,
        output: [...code.matchAll(/^console\.log.*?; \/\/ (.*?)(?:: (?=[a-z]).*)?$/gm)]
          .map(([, text]) => `${text}\n`)
          .join(""),
      }));
    });
}
