/** The socket that commits is closed: nothing is guessed, and the tables that it owned are claimed again. */
import { expect, it } from "vitest";

import { TableFlag } from "../../../src/nft/kernel/constants.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { TableWatch } from "../../../src/nft/table-watch.js";
import { operations, OWN, serviceTable } from "../../conformance/table/build.js";

const OWNED = TableFlag.owner | TableFlag.persist;

it("a transaction with a closed socket has no effect, and is sent with the next try", async () => {
  const kernel = new FakeKernel();
  const { table, service } = serviceTable(kernel);
  service(1, 1);
  await table.apply();
  service(1, 2);
  kernel.loseSocket();
  await expect(table.apply()).rejects.toMatchObject({ code: "system" });
  expect(operations(await table.apply())).toBe("chain +1 rule +1 element +2 -1");
});

it("an owned table is claimed again by the next transaction, without a read", async () => {
  const kernel = new FakeKernel();
  const { table, service } = serviceTable(kernel, { own: true });
  service(1, 1);
  await table.apply();
  const former = kernel.portId;
  service(1, 2);
  kernel.loseSocket();
  await expect(table.apply()).rejects.toMatchObject({ code: "system" });
  expect((await kernel.tables())[0]).toMatchObject({ flags: TableFlag.persist });
  const result = await table.apply();
  expect(operations(result)).toBe("table +1 chain +1 rule +1 element +2 -1");
  expect(result.resynced).toBeUndefined();
  expect(kernel.portId).not.toBe(former);
  expect((await kernel.tables())[0]).toMatchObject({ flags: OWNED, owner: kernel.portId });
});

it("another process that takes over the table in between is distinguished from ourselves", async () => {
  const kernel = new FakeKernel();
  const other = kernel.asOther();
  const { table, service } = serviceTable(kernel, { own: true });
  service(1, 1);
  await table.apply();
  service(1, 2);
  kernel.loseSocket();
  await expect(table.apply()).rejects.toMatchObject({ code: "system" });
  await other.commit([{ op: "add", kind: "table", ...OWN, flags: OWNED }]);
  await expect(table.apply()).rejects.toMatchObject({ code: "no-permission" });
  await other.close();
  expect((await table.apply()).transactions).toBe(2);
});

it("a watch continues with the new port, and reads what it may have missed", async () => {
  const kernel = new FakeKernel();
  const other = kernel.asOther();
  const { table, service } = serviceTable(kernel);
  const heard: string[] = [];
  const watch = new TableWatch(kernel, [table], {
    changed: (_table, { changes }) => void heard.push(...changes),
    lost: (reason) => void heard.push(reason),
    failed: (error) => {
      throw error;
    },
  });
  await watch.open();
  service(1, 1);
  await table.apply();
  kernel.loseSocket();
  service(1, 2);
  await expect(table.apply()).rejects.toMatchObject({ code: "system" });
  await table.apply();
  await expect.poll(() => heard).toEqual(["events were not read for a while"]);
  expect(await table.apply()).toMatchObject({ transactions: 0 });
  await other.commit([{ op: "add", kind: "chain", ...OWN, chain: "theirs" }]);
  await expect.poll(() => heard.at(-1)).toBe("chain theirs added or changed");
  await watch.close();
});
