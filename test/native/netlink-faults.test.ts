/**
 * Netlink sockets that are interrupted, lose or truncate answers, or are closed. The outcome of a transaction is looked
 * up and never guessed, and a read is complete or an error.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { buildHelper } from "../lab/build.js";
import { child } from "./lab.js";

let outcome: Record<string, unknown>;
beforeAll(async () => {
  const faults = buildHelper("netlink-faults");
  // After the sanitizer's library, which must come first.
  const preload = [process.env["LD_PRELOAD"], faults].filter((library) => library !== undefined).join(":");
  const environment = [`NFT_PROXIER_FAULTS=${faults}`, `LD_PRELOAD=${preload}`];
  outcome = (await child("netlink-faults.mjs", [], ["unshare", "--net", "env", ...environment])) as typeof outcome;
});

test("interrupted system calls change nothing", () => {
  expect(outcome["interrupted"]).toEqual({
    told: ["batch"],
    elements: 300,
    entries: 1,
    deleted: 1,
    met: [true, true, true],
  });
});

test("a transaction, and a dump of many datagrams, check only once that they still own their socket", () => {
  expect(outcome["looks"]).toEqual({ read: 1, committed: 1 });
});

describe("a transaction", () => {
  test.each([
    ["answerLost", true],
    ["answerCutOff", true],
    ["socketDiesBeforeTheAnswer", false],
  ])("takes effect once, whether its outcome is known or not (%s)", (name, samePort) => {
    const resynced = "the outcome of a transaction is unknown";
    expect(outcome[name]).toEqual({ met: 1, resynced, transactions: 1, again: 0, elements: 301, samePort });
  });

  test.each(["noMemoryToSend", "noBufferToSend", "socketDiesBeforeTheTransaction"])(
    "a transaction that could not be sent has no effect, and is sent with the next try (%s)",
    (name) => {
      expect(outcome[name]).toEqual({ met: 1, code: "system", before: 300, after: 301 });
    },
  );

  test("a transaction with a lost error has an unknown outcome", () => {
    expect(outcome["refusalLost"]).toMatchObject({ code: "unknown-outcome", same: true });
  });
});

test.each([
  ["dumpLost", "ENOBUFS"],
  ["dumpLostInItsMiddle", "ENOBUFS"],
  ["dumpCutOff", "EMSGSIZE"],
  ["dumpSocketDies", "EBADF"],
])("a dump is complete or an error, and nothing is written on the basis of an incomplete one (%s)", (name, errno) => {
  const failed = { met: 1, code: "system", errno, first: "system" };
  expect(outcome[name]).toEqual({ ...failed, elements: 3000, transactions: 0 });
});

test("missing events are reported as lost, and a dead socket as an error", () => {
  // A kernel that had no room (ENOBUFS) is silent until the socket is empty: missing events are reported again then.
  const heard = ["batch", "lost", "batch", "lost", "lost", "batch", "system"];
  expect(outcome["events"]).toEqual({ met: [0, 1, 1, 1], heard, tables: 0 });
});

describe("connection tracking", () => {
  test("a request whose reply is lost fails, and the next one receives its own reply", () => {
    const lost = [1, "unknown-outcome", true, 9];
    expect(outcome["conntrackAnswers"]).toEqual([lost, lost, lost, [1, "system", true, 9]]);
  });

  test("a deletion whose reply is lost is reported neither as done nor as failed", () => {
    const lost = [1, "unknown-outcome", 0];
    expect(outcome["conntrackDeletions"]).toEqual([lost, lost, lost]);
  });

  test("an incomplete dump is an error", () => {
    const lost = [1, "unknown-outcome", 500];
    expect(outcome["conntrackDumps"]).toEqual([lost, lost, lost, lost]);
  });
});
