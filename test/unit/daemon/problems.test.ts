import { expect, test } from "vitest";
import { flowtableProblems } from "../../../src/daemon/problems.js";

test("a kernel without flowtables is one problem, with what to do", () => {
  const [problem, ...more] = flowtableProblems({ unsupported: "Linux 6.4 is needed", failures: () => ["more"] });
  expect(more).toEqual([]);
  expect(problem.what).toBe("no flowtable: Linux 6.4 is needed");
  expect(problem.remedy).toContain("remove `--flowtable`");
});

test("ten interfaces that the kernel refuses are named, and the others counted", () => {
  const failures = Array.from({ length: 12 }, (_, i) => `interface pod${i}: EOPNOTSUPP`);
  const problems = flowtableProblems({ unsupported: undefined, failures: () => failures });
  expect(problems).toHaveLength(11);
  expect(problems[0]).toMatchObject({ what: "flowtable: interface pod0: EOPNOTSUPP" });
  expect(problems[10]).toMatchObject({ what: expect.stringContaining("2 more interfaces of the flowtable") as string });
});
