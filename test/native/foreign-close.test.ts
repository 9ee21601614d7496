/**
 * Other code of the process closes the addon's descriptors, and reuses their numbers for its own files and sockets. The addon must not
 * touch these, and reads, commits and connection tracking must recover by themselves. Real descriptors, on the real kernel.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { child } from "./lab.js";

let outcome: Record<string, unknown>;
beforeAll(async () => {
  outcome = (await child("foreign-close.mjs", [], ["unshare", "--net"])) as typeof outcome;
});

describe.each(["Gone", "Reused"])("descriptors whose number is %s", (fate) => {
  test("reads continue over other sockets, and close() does not touch the new owner of the number", () => {
    expect(outcome[`reads${fate}`]).toEqual({ some: true, after: ["ok", "ok", "ok"], harmed: 0 });
  });

  test("connection tracking continues over other sockets, and close() does not touch the new owner of the number", () => {
    const after = Array.from({ length: 7 }, () => "ok");
    expect(outcome[`conntrack${fate}`]).toEqual({ some: true, after, harmed: 0 });
  });
});

test("another connection's socket that has the number is neither used nor closed", () => {
  expect(outcome["reusedByAnotherConnection"]).toEqual({ after: ["ok", "system", "ok"], others: ["ok", "ok"] });
});

test("a namespace's descriptor whose number was reused is not mistaken for the process's own namespace", () => {
  const refused = expect.stringMatching(/^system .*cannot enter the network namespace/) as unknown;
  expect(outcome["namespace"]).toEqual({ after: [refused], harmed: 0 });
});

test("a commit that must raise the send buffer of a dead socket fails, and the next one succeeds", () => {
  expect(outcome["largeCommit"]).toEqual({ after: ["system", "ok"], harmed: 0 });
});

test("listeners report at the next event that they ended, and do not touch the new owner of the number", () => {
  const told = expect.arrayContaining(["conntrack system EBADF", "nf_tables system EBADF"]) as unknown;
  expect(outcome["listeners"]).toEqual({ told, stolen: 2, harmed: 0 });
});
