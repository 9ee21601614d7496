/** The socket that commits is closed behind the addon's back, as a bug elsewhere in the process would do. */
import { closeSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { expect, test } from "vitest";
import { TableFlag } from "../../src/nft/kernel/constants.js";
import type { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import { addChain, addTable, ip, kernelError, useLab } from "./lab.js";

const lab = useLab();

/** Closes the descriptor of the socket with this netlink port. */
function closeSocketOf(kernel: NftKernel, netns: string): void {
  const table = readFileSync(netns.replace(/ns\/net$/, "net/netlink"), "utf8");
  const row = table
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .find(([, protocol, port]) => protocol === "12" && Number(port) === kernel.portId);
  if (row === undefined) throw new Error(`no netlink socket with port ${kernel.portId}\n${table}`);
  const socket = `socket:[${row.at(-1)}]`;
  const fd = readdirSync("/proc/self/fd").find((name) => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`) === socket;
    } catch {
      // Closed since it was listed.
      return false;
    }
  });
  if (fd === undefined) throw new Error(`${socket} is not a socket of this process`);
  closeSync(Number(fd));
}

test("the commit fails without any effect, and the next one uses another socket", async () => {
  const { open, netns } = lab();
  const kernel = await open();
  const t = ip("dead");
  await kernel.commit([addTable(t)]);
  const former = kernel.portId;
  closeSocketOf(kernel, netns);
  const error = await kernelError(kernel.commit([addChain(t, "c")]));
  expect(error).toMatchObject({ code: "system", errno: "EBADF" });
  expect(kernel.portId).not.toBe(former);
  expect(await kernel.chains(t)).toEqual([]);
  await kernel.commit([addChain(t, "c")]);
  expect(await kernel.chains(t)).toHaveLength(1);
  await kernel.commit([{ op: "delete", kind: "table", ...t }]);
});

test("the socket's objects have no owner, and the new socket can claim them", async () => {
  const { open, netns } = lab();
  const kernel = await open();
  const owned = { ...addTable(ip("owned")), flags: TableFlag.owner | TableFlag.persist };
  await kernel.commit([owned]);
  expect((await kernel.tables())[0]).toMatchObject({ owner: kernel.portId });
  closeSocketOf(kernel, netns);
  expect((await kernel.tables())[0]).toMatchObject({ flags: TableFlag.persist });
  await kernelError(kernel.commit([owned]));
  await kernel.commit([owned]);
  expect((await kernel.tables())[0]).toMatchObject({ owner: kernel.portId });
  await kernel.commit([{ op: "delete", kind: "table", ...ip("owned") }]);
});
