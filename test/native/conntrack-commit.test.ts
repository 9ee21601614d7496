/** Writes to nf_tables while connection tracking is read. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.js";
import { flow } from "../support/conntrack-entries.ts";
import { addresses, addSet, addTable, elements, ip, manyAddresses, useLab } from "./lab.js";
import { atLength } from "../lab/length.ts";

const lab = useLab();
const ENTRIES = 2_000;
/** Many times the number of threads in libuv's pool. */
const DUMPS = atLength({ short: 60, usual: 200 });

let table: NetlinkConntrack;
beforeAll(async () => {
  table = await NetlinkConntrack.open({ netns: lab().netns });
  for (let from = 0; from < ENTRIES; from += 100) {
    await Promise.all(Array.from({ length: 100 }, (_, i) => table.create(flow({ clientPort: 1000 + from + i }))));
  }
});
afterAll(async () => {
  await table.close();
});

test("a commit waits for none of the dumps that were requested before it", async () => {
  const { kernel } = lab();
  const ref = ip("beside");
  await kernel.commit([addTable(ref), addSet(ref, addresses("s"))]);
  let over = 0;
  const dumps = Array.from({ length: DUMPS }, async () => {
    // The kernel walks its whole table without a match.
    const { seen } = await table.dump({ family: "ip", mark: { value: 7 } }, () => undefined);
    over++;
    return seen;
  });
  await kernel.commit([elements("add", ref, "s", manyAddresses(10))]);
  // One after the other, they would take a hundred times as long as the commit.
  expect(over).toBeLessThan(DUMPS / 2);
  expect(await Promise.all(dumps)).toEqual(Array.from({ length: DUMPS }, () => 0));
});

test("dumps take turns: a short one does not wait for the end of a long one", async () => {
  const ended: string[] = [];
  const long = table.dump({}, () => undefined).finally(() => ended.push("long"));
  const filter = { family: "ip", protocol: 17, original: { sourcePort: 1000 } } as const;
  const short = table.dump(filter, () => undefined).finally(() => ended.push("short"));
  expect(await short).toMatchObject({ entries: 1, seen: 1 });
  expect(await long).toMatchObject({ entries: ENTRIES });
  expect(ended).toEqual(["short", "long"]);
});
