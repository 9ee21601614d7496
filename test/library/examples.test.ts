/** The examples in the checkout, using the build's output. */
import path from "node:path";
import { testExamples } from "./examples.ts";

const root = path.resolve(import.meta.dirname, "../..");

testExamples({
  node: [process.execPath],
  examples: path.join(root, "examples"),
  files: path.join(root, "build", "library"),
  root: "/",
});
