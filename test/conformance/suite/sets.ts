import { expect } from "vitest";
import { DATA_VERDICT, DataTypeId, SetFlag } from "../../../src/nft/kernel/constants.js";
import type { Kernel, SetDump } from "../../../src/nft/kernel/kernel.js";
import {
  addressMap,
  addressSet,
  newChain,
  newElements,
  newSet,
  newTable,
  noSet,
  T,
  verdictMap,
} from "../../support/operations.ts";
import { runCases, type Case, type Current } from "../cases.js";

const table = newTable();
/** address . protocol . port */
const service = {
  keyType: (DataTypeId.ipv4_addr << 12) | (DataTypeId.inet_proto << 6) | DataTypeId.inet_service,
  keyLen: 12,
};

async function only(kernel: Kernel): Promise<Omit<SetDump, "handle" | "count">> {
  const [{ handle, count: _count, ...set }] = await kernel.sets(T);
  expect(handle).toBeGreaterThan(0n);
  return set;
}

export function sets(current: Current): void {
  runCases(current, [...making, ...changing, ...deleting]);
}

const making: Case[] = [
  {
    title: "a set",
    given: [table],
    when: [newSet(addressSet("s"))],
    then: async ({ kernel }) =>
      expect(await only(kernel)).toEqual({ ...T, set: "s", flags: 0, keyType: DataTypeId.ipv4_addr, keyLen: 4 }),
  },
  {
    title: "a sized map",
    given: [table],
    when: [newSet(addressMap("m", { size: 100 }))],
    then: async ({ kernel }) =>
      expect(await only(kernel)).toEqual({
        ...T,
        set: "m",
        flags: SetFlag.map,
        keyType: DataTypeId.ipv4_addr,
        keyLen: 4,
        dataType: DataTypeId.ipv4_addr,
        dataLen: 4,
        size: 100,
      }),
  },
  {
    title: "a verdict map over a concatenation",
    given: [table],
    when: [newSet(verdictMap("m", service))],
    then: async ({ kernel }) =>
      expect(await only(kernel)).toEqual({ ...T, set: "m", flags: SetFlag.map, dataType: DATA_VERDICT, ...service }),
  },
  {
    title: "a set with timeouts",
    given: [table],
    when: [newSet(addressSet("s", { flags: SetFlag.timeout | SetFlag.eval, timeout: 60_000n, size: 10 }))],
    then: async ({ kernel }) =>
      expect(await only(kernel)).toMatchObject({ flags: SetFlag.timeout | SetFlag.eval, timeout: 60_000n, size: 10 }),
  },
  {
    title: "ranges of a concatenation",
    given: [table],
    when: [newSet(addressSet("s", { ...service, flags: SetFlag.interval | SetFlag.concat, fieldLens: [4, 1, 2] }))],
    then: async ({ kernel }) =>
      expect(await only(kernel)).toMatchObject({ flags: SetFlag.interval | SetFlag.concat, fieldLens: [4, 1, 2] }),
  },
  {
    title: "userdata is returned unchanged",
    given: [table],
    when: [newSet(addressSet("s", { userdata: Uint8Array.of(0, 2, 120, 0) }))],
    then: async ({ kernel }) => expect([...((await only(kernel)).userdata ?? [])]).toEqual([0, 2, 120, 0]),
  },
  { title: "in a missing table", when: [newSet(addressSet("s"))], faults: [{ op: 0, errno: "ENOENT" }] },
  {
    title: "unknown flags",
    realOnly: true,
    given: [table],
    when: [newSet(addressSet("s", { flags: 0x8000 }))],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
    since: { fact: "flagsByPolicy", faults: [{ op: 0, errno: "EINVAL" }] },
  },
  {
    title: "data without the map flag",
    realOnly: true,
    given: [table],
    when: [newSet(addressMap("s", { flags: 0 }))],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
  {
    title: "the map flag without data",
    realOnly: true,
    given: [table],
    when: [newSet(addressSet("s", { flags: SetFlag.map }))],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
  {
    title: "a timeout without the flag",
    realOnly: true,
    given: [table],
    when: [newSet(addressSet("s", { timeout: 1000n }))],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
  {
    title: "a constant set with timeouts",
    realOnly: true,
    given: [table],
    when: [newSet(addressSet("s", { flags: SetFlag.constant | SetFlag.timeout }))],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "an interval set that packets add to",
    realOnly: true,
    given: [table],
    when: [newSet(addressSet("s", { flags: SetFlag.interval | SetFlag.eval }))],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "fields that do not add up to the key",
    realOnly: true,
    given: [table],
    when: [newSet(addressSet("s", { ...service, flags: SetFlag.interval | SetFlag.concat, fieldLens: [4, 1] }))],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
];

const changing: Case[] = [
  { title: "add accepts the same set", given: [table, newSet(addressSet("s"))], when: [newSet(addressSet("s"))] },
  {
    title: "create refuses the same set",
    given: [table, newSet(addressSet("s"))],
    when: [newSet(addressSet("s"), "create")],
    faults: [{ op: 0, errno: "EEXIST" }],
  },
  {
    title: "another key",
    given: [table, newSet(addressSet("s"))],
    when: [newSet(addressSet("s", { keyType: DataTypeId.ipv6_addr, keyLen: 16 }))],
    faults: [{ op: 0, errno: "EEXIST" }],
    before: { fact: "otherSetRefused" },
  },
  {
    title: "other flags",
    given: [table, newSet(addressSet("s"))],
    when: [newSet(addressSet("s", { flags: SetFlag.interval }))],
    faults: [{ op: 0, errno: "EEXIST" }],
    before: { fact: "otherSetRefused" },
  },
  {
    title: "other data",
    given: [table, newSet(addressMap("m"))],
    when: [newSet(verdictMap("m"))],
    faults: [{ op: 0, errno: "EEXIST" }],
    before: { fact: "otherSetRefused" },
  },
  {
    title: "another size takes effect",
    given: [table, newSet(addressSet("s", { size: 1 })), newElements("s", [{ key: "1.1.1.1" }])],
    when: [newSet(addressSet("s", { size: 2 }))],
    then: async ({ kernel }) => {
      expect(await only(kernel)).toMatchObject({ size: 2 });
      await kernel.commit([newElements("s", [{ key: "2.2.2.2" }])]);
    },
    before: { fact: "sizeUpdate", then: async ({ kernel }) => expect(await only(kernel)).toMatchObject({ size: 1 }) },
  },
  {
    title: "an add without a size keeps the old one",
    given: [table, newSet(addressSet("s", { size: 7 }))],
    when: [newSet(addressSet("s"))],
    then: async ({ kernel }) => expect(await only(kernel)).toMatchObject({ size: 7 }),
  },
  {
    title: "another timeout takes effect",
    given: [table, newSet(addressSet("s", { flags: SetFlag.timeout, timeout: 60_000n }))],
    when: [newSet(addressSet("s", { flags: SetFlag.timeout, timeout: 90_000n }))],
    then: async ({ kernel }) => expect(await only(kernel)).toMatchObject({ timeout: 90_000n }),
    before: {
      fact: "otherSetRefused",
      then: async ({ kernel }) => expect(await only(kernel)).toMatchObject({ timeout: 60_000n }),
    },
  },
];

const deleting: Case[] = [
  {
    title: "delete",
    given: [table, newSet(addressSet("s")), newElements("s", [{ key: "1.1.1.1" }])],
    when: [noSet("s")],
    then: none,
  },
  { title: "delete of a missing set", given: [table], when: [noSet("s")], faults: [{ op: 0, errno: "ENOENT" }] },
  { title: "destroy of a missing set", given: [table], when: [noSet("s", "destroy")] },
  {
    title: "destroy deletes the set",
    given: [table, newSet(addressSet("s"))],
    when: [noSet("s", "destroy")],
    then: none,
  },
  {
    title: "delete and create of one name in one batch, as another kind",
    given: [table, newSet(addressSet("s")), newElements("s", [{ key: "1.1.1.1" }])],
    when: [noSet("s"), newSet(addressMap("s"), "create"), newElements("s", [{ key: "1.1.1.1", data: "2.2.2.2" }])],
    then: async ({ kernel }) => expect(await only(kernel)).toMatchObject({ flags: SetFlag.map }),
  },
  {
    title: "a chain and a set may share a name",
    given: [table],
    when: [newChain("x"), newSet(addressSet("x"))],
    then: async ({ kernel }) => expect(await kernel.sets(T)).toHaveLength(1),
  },
];

async function none({ kernel }: { kernel: Kernel }): Promise<void> {
  expect(await kernel.sets(T)).toEqual([]);
}
