import { expect, test } from "vitest";
import { oldKernelWarning } from "../../../src/node/kernel-release.js";

test.each(["4.18.0-553.el8.x86_64", "5.4.0-200-generic"])(
  "a kernel %s is reported as untested, with what to do",
  (release) => {
    expect(oldKernelWarning(release)).toMatch(`Linux ${release} is older than 5.10`);
    expect(oldKernelWarning(release)).toMatch("needs a later kernel");
  },
);

test.each(["5.10.0-33-amd64", "6.1.0-50-cloud-amd64", "7.2.13", "odd"])("a kernel %s is not reported", (release) => {
  expect(oldKernelWarning(release)).toBeUndefined();
});
