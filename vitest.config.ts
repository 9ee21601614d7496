import { configDefaults, defineConfig } from "vitest/config";
import { isShort, LONG_FILES } from "./test/lab/length.ts";
import { patience } from "./test/lab/patience.ts";

/** Files share workers: to start one and load the program into it takes longer than most files. */
const isolate = false;

/**
 * One project per tier. `npm test` runs them one after another (test/run.ts): all but "unit" and "bootstrap" need their
 * own network namespace, which test/lab/enter.mjs makes.
 */
export default defineConfig({
  test: {
    pool: "forks",
    // One more than the cores that there should be: each file waits for a third of its time.
    maxWorkers: 3,
    exclude: [...configDefaults.exclude, ...(isShort ? LONG_FILES.map((name) => `test/${name}.test.ts`) : [])],
    // Nothing but a failure waits so long. Machines that run tests are busy, and stand still now and then.
    testTimeout: patience(180_000),
    hookTimeout: patience(180_000),
    expect: { poll: { timeout: patience(90_000) } },
    projects: [
      { extends: true, test: { name: "unit", include: ["test/unit/**/*.test.ts"], isolate } },
      // The first test downloads, and each unpacks 200 MB.
      {
        extends: true,
        test: { name: "bootstrap", include: ["test/bootstrap/**/*.test.ts"], testTimeout: patience(600_000) },
      },
      { extends: true, test: { name: "conformance", include: ["test/conformance/**/*.test.ts"], isolate } },
      { extends: true, test: { name: "native", include: ["test/native/**/*.test.ts"], isolate } },
      { extends: true, test: { name: "packets", include: ["test/packets/**/*.test.ts"], isolate } },
      // One test holds several change-overs, and the machine is loaded meanwhile.
      {
        extends: true,
        test: {
          name: "rollback",
          include: ["test/rollback/**/*.test.ts"],
          testTimeout: patience(600_000),
          maxWorkers: 2,
        },
      },
      { extends: true, test: { name: "leaks", include: ["test/leaks/**/*.test.ts"] } },
      {
        extends: true,
        test: {
          name: "library",
          include: ["test/library/*.test.ts"],
          exclude: ["test/library/package.test.ts", "test/library/cross-compiler.test.ts"],
          isolate,
        },
      },
      {
        extends: true,
        test: {
          name: "package",
          include: ["test/library/package.test.ts", "test/library/cross-compiler.test.ts"],
          hookTimeout: patience(1800_000),
        },
      },
      { extends: true, test: { name: "image", include: ["test/image/**/*.test.ts"] } },
      { extends: true, test: { name: "page", include: ["test/page/**/*.test.ts"] } },
      {
        extends: true,
        // One file at a time: two programs and a load share the machine already.
        test: { name: "kube-proxy", include: ["test/kube-proxy/**/*.test.ts"], fileParallelism: false },
      },
      {
        extends: true,
        test: { name: "nft", include: ["test/nft-versions/**/*.test.ts"], hookTimeout: patience(300_000) },
      },
    ],
  },
});
