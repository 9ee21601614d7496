/** Netlink messages that JavaScript encodes and decodes, on the kernel: interfaces, their addresses and routes. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { LinkTable } from "../../src/netlink/link-table.js";
import { NetlinkProtocol } from "../../src/nft/kernel/netlink-message.js";
import { useLab } from "./lab.js";

const lab = useLab();

const run = promisify(execFile);
/** A preloaded sanitizer would find faults in `ip`, and end it. */
const env = { ...process.env, LD_PRELOAD: undefined };

/** Runs lines for `ip -batch`. */
async function ip(...lines: readonly string[]): Promise<void> {
  const running = run("nsenter", [`--net=${lab().netns}`, "ip", "-batch", "-"], { env });
  running.child.stdin?.end(`${lines.join("\n")}\n`);
  await running;
}

async function localRoutes(): Promise<string> {
  const show = (flag: string) =>
    run("nsenter", [`--net=${lab().netns}`, "ip", flag, "route", "show", "table", "local"], { env });
  return (await Promise.all(["-4", "-6"].map(show))).map(({ stdout }) => stdout).join("");
}

test("an interface, its addresses and the source of its local routes are read, changed and removed, each twice", async () => {
  const links = new LinkTable(lab().kernel.connection);
  await ip(
    "link set lo up",
    "address add 192.0.2.1/32 dev lo",
    "address add 2001:db8::1/128 dev lo nodad",
    "link add vips type bridge",
    "address add 10.96.0.1/32 dev vips",
    "address add fd00:96::1/128 dev vips nodad",
  );
  expect(await links.link("none")).toBeUndefined();
  const link = await links.link("vips");
  expect(link?.kind).toBe("bridge");
  const index = link!.index;
  const addresses = [
    { family: "ip", address: "10.96.0.1", prefixLength: 32 },
    { family: "ip6", address: "fd00:96::1", prefixLength: 128 },
  ] as const;
  expect(await links.addressesOf(index)).toEqual(addresses);

  // The kernel adds the local route of an IPv6 address a moment later.
  for (const { address } of addresses) await expect.poll(() => links.sourceTo(address)).toBe(address);
  for (const [address, source] of [
    ["10.96.0.1", "192.0.2.1"],
    ["fd00:96::1", "2001:db8::1"],
  ]) {
    for (let i = 0; i < 2; i++) await links.setLocalSource(index, address, source);
    expect(await links.sourceTo(address)).toBe(source);
  }
  expect(await links.sourceTo("198.51.100.1")).toBeUndefined();

  for (let i = 0; i < 2; i++) {
    for (const address of addresses) {
      await links.deleteLocalRoute(index, address.address);
      await links.deleteAddress(index, address);
    }
  }
  expect(await links.addressesOf(index)).toEqual([]);
  expect(await localRoutes()).not.toMatch(/10\.96\.0\.1|fd00:96::1/);
  for (let i = 0; i < 2; i++) await links.deleteLink(index);
  expect(await links.link("vips")).toBeUndefined();
});

test("anything but one complete request is rejected before it is sent", async () => {
  const { connection } = lab().kernel;
  const invalid = expect.objectContaining({ code: "invalid" }) as unknown;
  const request = (length: number, flags: number): Uint8Array => {
    const bytes = new Uint8Array(16);
    new DataView(bytes.buffer).setUint32(0, length, true);
    new DataView(bytes.buffer).setUint16(6, flags, true);
    return bytes;
  };
  for (const bytes of [new Uint8Array(), new Uint8Array(15), request(17, 1), request(15, 1), request(16, 0)]) {
    await expect(connection.exchange(NetlinkProtocol.route, bytes)).rejects.toEqual(invalid);
  }
  await expect(connection.exchange(1, request(16, 1))).rejects.toEqual(invalid);
});
