/** The program in a few files for guests: packets starts it all the time, and two fifths of a start go into finding its modules. */
import path from "node:path";
import { build } from "vite";
import { root } from "../checks.ts";

/** Writes dist/main.js with all that it imports into `directory`, as main.js and chunks beside it. Rejects with Vite's errors. */
export async function bundleProgram(directory: string): Promise<void> {
  await build({
    root,
    configFile: false,
    logLevel: "warn",
    ssr: { noExternal: true },
    build: {
      ssr: path.join(root, "dist", "main.js"),
      outDir: directory,
      emptyOutDir: true,
      target: "node24",
      minify: false,
      // Beside main.js, two levels below the root as the sources are: the addon and package.json are found from there.
      rolldownOptions: { output: { chunkFileNames: "[name]-[hash].js" } },
    },
  });
}
