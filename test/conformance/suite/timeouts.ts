import { expect, test } from "vitest";
import { SetFlag } from "../../../src/nft/kernel/constants.js";
import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import { addressSet, newElements, newSet, newTable, noElements, T, unpack } from "../../support/operations.ts";
import { faultsOf, runCases, type Current } from "../cases.js";

const S = addressSet("s", { flags: SetFlag.timeout, timeout: 10_000n });
const given = [newTable(), newSet(S)];

async function rows(kernel: Kernel): Promise<Record<string, unknown>[]> {
  return unpack(await kernel.elements(T, S));
}

/** ms until the only element expires. */
async function left(kernel: Kernel): Promise<number> {
  const [{ expiration }] = await rows(kernel);
  return Number(expiration);
}

/** The kernel counts in ticks, and the test itself takes time: seconds if the machine stands still meanwhile. */
function expectAbout(actual: number, expected: number): void {
  expect(actual).toBeLessThanOrEqual(expected);
  expect(actual).toBeGreaterThan(expected - 9_000);
}

export function timeouts(current: Current): void {
  runCases(current, [
    {
      title: "the set's own timeout and an element's",
      given,
      when: [
        newElements("s", [
          { key: "1.1.1.1", timeout: 0 },
          { key: "2.2.2.2", timeout: 60_000 },
        ]),
      ],
      then: async ({ kernel }) => {
        const [own, longer] = await rows(kernel);
        expectAbout(Number(own.expiration), 10_000);
        expect(longer.timeout).toBe(60_000);
        expectAbout(Number(longer.expiration), 60_000);
      },
    },
    {
      title: "an element with part of its time passed",
      given,
      when: [newElements("s", [{ key: "1.1.1.1", timeout: 60_000, expiration: 30_000 }])],
      then: async ({ kernel }) => expectAbout(await left(kernel), 30_000),
    },
    {
      title: "an element with more time left than its timeout",
      realOnly: true,
      given,
      when: [newElements("s", [{ key: "1.1.1.1", timeout: 30_000, expiration: 60_000 }])],
      faults: [{ op: 0, errno: "ERANGE", element: 0 }],
      before: { fact: "moreLeftRefused" },
    },
    {
      title: "an add with another timeout renews the element",
      given: [...given, newElements("s", [{ key: "1.1.1.1" }])],
      when: [newElements("s", [{ key: "1.1.1.1", timeout: 90_000 }])],
      then: async ({ kernel }) => {
        expect((await rows(kernel))[0].timeout).toBe(90_000);
        expectAbout(await left(kernel), 90_000);
      },
      before: { fact: "elementTimeoutUpdate", then: async ({ kernel }) => expectAbout(await left(kernel), 10_000) },
    },
    {
      title: "create of an existing element",
      given: [...given, newElements("s", [{ key: "1.1.1.1" }])],
      when: [newElements("s", [{ key: "1.1.1.1" }], "create")],
      faults: [{ op: 0, errno: "EEXIST", element: 0 }],
    },
    {
      title: "delete",
      given: [...given, newElements("s", [{ key: "1.1.1.1" }])],
      when: [noElements("s", [{ key: "1.1.1.1" }])],
      then: async ({ kernel }) => expect(await rows(kernel)).toEqual([]),
    },
  ]);

  test("a set without a default timeout keeps elements without a timeout", async () => {
    const { kernel } = current();
    await kernel.commit([
      newTable(),
      newSet(addressSet("s", { flags: SetFlag.timeout })),
      newElements("s", [{ key: "1.1.1.1" }]),
    ]);
    expect(await rows(kernel)).toMatchObject([{ key: "01010101", timeout: 0, expiration: 0 }]);
  });

  test("an add of the same element does not renew it", async () => {
    const { kernel, wait } = current();
    await kernel.commit([...given, newElements("s", [{ key: "1.1.1.1", timeout: 60_000, expiration: 30_000 }])]);
    await wait(100);
    await kernel.commit([newElements("s", [{ key: "1.1.1.1", timeout: 60_000 }])]);
    expectAbout(await left(kernel), 30_000);
  });

  test("expired elements are gone", async () => {
    const { kernel, facts, wait } = current();
    await kernel.commit([
      ...given,
      newElements("s", [
        { key: "1.1.1.1", timeout: 100 },
        { key: "2.2.2.2", timeout: 60_000 },
      ]),
    ]);
    await wait(250);
    expect((await rows(kernel)).map(({ key }) => key)).toEqual(["02020202"]);
    expect(await faultsOf(kernel, [noElements("s", [{ key: "1.1.1.1" }])])).toEqual([
      { op: 0, errno: "ENOENT", ...(facts.namesElements && { element: 0 }) },
    ]);
    await kernel.commit([newElements("s", [{ key: "1.1.1.1" }], "create")]);
    expect(await rows(kernel)).toHaveLength(2);
  });
}
