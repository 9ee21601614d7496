import { expect, test } from "vitest";
import { flowtableProblems, nodeProblems } from "../../../src/daemon/problems.js";

test("a kernel without flowtables is one problem, with what to do", () => {
  const [problem, ...more] = flowtableProblems({ unsupported: "Linux 6.4 is needed", failures: () => ["more"] });
  expect(more).toEqual([]);
  expect(problem.what).toBe("no flowtable: Linux 6.4 is needed");
  expect(problem.remedy).toMatch(/^remove `--flowtable`/);
});

test("ten interfaces that the kernel refuses are named, and the others counted", () => {
  const failures = Array.from({ length: 12 }, (_, i) => `interface pod${i}: EOPNOTSUPP`);
  const problems = flowtableProblems({ unsupported: undefined, failures: () => failures });
  expect(problems).toHaveLength(11);
  expect(problems[0]).toMatchObject({ what: "flowtable: interface pod0: EOPNOTSUPP" });
  expect(problems[10]).toMatchObject({ what: expect.stringContaining("2 more interfaces of the flowtable") as string });
});

test.each([
  ["unread", "Node n1 has not been read yet, so no rules are written yet", /permission to list Nodes/],
  ["absent", "Node n1 does not exist, so no rules are written yet", /--hostname-override/],
  ["present", "Node n1 has no address, so no rules are written yet", /set bindAddress/],
] as const)("a Node that is %s", (node, what, remedy) => {
  const problems = nodeProblems({ missing: "addresses", waiting: true, node }, "n1");
  expect(problems).toEqual([{ what, remedy: expect.stringMatching(remedy) as string }]);
});
