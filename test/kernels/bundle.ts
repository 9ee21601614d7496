/** The program in a few files for guests: the packet tests start it constantly, and finding its modules takes two fifths of a start. */
import path from "node:path";
import { build } from "vite";
import { root } from "../checks.ts";

/** Writes dist/main.js with everything that it imports into `directory`, as main.js and chunks. Rejects with Vite's errors. */
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
      // Next to main.js, two levels below the root like the sources: the addon and package.json are found from there.
      rolldownOptions: { output: { chunkFileNames: "[name]-[hash].js" } },
    },
  });
}
