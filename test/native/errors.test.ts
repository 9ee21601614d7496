import { describe, expect, test } from "vitest";
import { KernelError } from "../../src/nft/kernel/errors.js";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { Op } from "../../src/nft/kernel/kernel.js";
import {
  addChain,
  addresses,
  addRule,
  addSet,
  addTable,
  child,
  dropTable,
  elements,
  ip,
  kernelError,
  manyAddresses,
  useLab,
} from "./lab.js";

const lab = useLab();

describe("faults", () => {
  test("several faults are reported at their operations, in order", async () => {
    const { kernel } = lab();
    const ref = ip("several");
    const ops: Op[] = [
      addTable(ref),
      { op: "delete", kind: "chain", ...ref, chain: "no such chain" },
      addChain(ref, "fine"),
      addRule(ref, "nowhere", []),
      elements("add", ref, "no such set", manyAddresses(1)),
    ];
    const error = await kernelError(kernel.commit(ops));
    expect(error).toMatchObject({ code: "refused", errno: "ENOENT", details: { action: "commit" } });
    expect(error.faults).toEqual([
      { op: 1, errno: "ENOENT" },
      { op: 3, errno: "ENOENT" },
      { op: 4, errno: "ENOENT" },
    ]);
    expect(error.message).toContain("op 1 (delete chain ip several no such chain): ENOENT");
    // No part of it was applied.
    expect(await kernel.tables("ip")).toEqual([]);
  });

  test("the element at fault is found in a batch of many messages", async () => {
    const { kernel } = lab();
    const ref = ip("many");
    await kernel.commit([
      addTable(ref),
      addSet(ref, addresses("s")),
      elements("add", ref, "s", manyAddresses(1, 0x0a003039)),
    ]);
    const error = await kernelError(kernel.commit([elements("create", ref, "s", manyAddresses(15_000))]));
    expect(error.faults).toEqual([{ op: 0, element: 12_345, errno: "EEXIST" }]);
    const missing = await kernelError(
      kernel.commit([addChain(ref, "c"), elements("delete", ref, "s", manyAddresses(2, 0x0a003039))]),
    );
    expect(missing.faults).toEqual([{ op: 1, element: 1, errno: "ENOENT" }]);
    await kernel.commit([dropTable(ref)]);
  });

  test("more faults than fit the message are all in `faults`", async () => {
    const { kernel } = lab();
    const ops = Array.from({ length: 200 }, (_, i): Op => ({ op: "delete", kind: "table", ...ip(`none-${i}`) }));
    const error = await kernelError(kernel.commit(ops));
    expect(error.faults.map(({ op }) => op)).toEqual(ops.map((_, i) => i));
    expect(error.message).toContain("and 195 more");
  });

  test("a rule whose set is missing: the error names the expression at fault and the objects that the rule uses", async () => {
    const { kernel } = lab();
    const ref = ip("expression");
    const error = await kernelError(
      kernel.commit([
        addTable(ref),
        addChain(ref, "c"),
        addRule(ref, "c", [
          { type: "payload", base: 1, offset: 12, len: 4, dreg: 1 },
          { type: "lookup", set: "no such set", sreg: 1 },
          { type: "counter" },
        ]),
      ]),
    );
    expect(error.faults).toMatchObject([{ op: 2, errno: "ENOENT" }]);
    expect(error.message).toContain("at expression 1 (lookup)");
    expect(error.message).toContain("payload lookup counter");
  });

  test("an expression that no kernel has is refused", async () => {
    const { kernel } = lab();
    const ref = ip("novel");
    const error = await kernelError(
      kernel.commit([
        addTable(ref),
        addChain(ref, "c"),
        addRule(ref, "c", [{ type: "opaque", name: "novel", data: new Uint8Array() }]),
      ]),
    );
    expect(error.faults).toMatchObject([{ op: 2, errno: "ENOENT" }]);
    expect(error.message).toContain("at expression 0 (novel)");
  });

  test("the error includes the kernel's own text", async () => {
    const { kernel } = lab();
    const ref = ip("text");
    await kernel.commit([
      addTable(ref),
      { op: "add", kind: "chain", ...ref, chain: "c", base: { type: "filter", hook: 1, priority: 0 } },
    ]);
    // NAT in a chain of another type: nf_tables gives no error text, but nfnetlink's attribute checks do.
    const error = await kernelError(
      kernel.commit([
        { op: "add", kind: "set", ...ref, set: "x".repeat(255), flags: 0xfff00000, keyType: 0, keyLen: 4 },
      ]),
    );
    expect(error.code).toBe("refused");
    const [fault] = error.faults;
    expect(fault.op).toBe(0);
    if (fault.text !== undefined) expect(error.message).toContain(fault.text);
    await kernel.commit([dropTable(ref)]);
  });
});

describe("generations", () => {
  test("a dry run is checked like a commit and does not change the generation", async () => {
    const { kernel } = lab();
    const ref = ip("dry");
    const before = await kernel.generation();
    const taken = await kernel.commit([addTable(ref), addChain(ref, "c")], { dryRun: true });
    expect(taken.messages).toBe(2);
    const error = await kernelError(
      kernel.commit([addTable(ref), { op: "delete", kind: "chain", ...ref, chain: "x" }], { dryRun: true }),
    );
    expect(error.faults).toEqual([{ op: 1, errno: "ENOENT" }]);
    expect(await kernel.generation()).toEqual(before);
    expect(await kernel.tables()).toEqual([]);
  });

  test("a commit for another generation is stale, and one for the right generation is accepted", async () => {
    const { kernel } = lab();
    const ref = ip("stale");
    const { id } = await kernel.generation();
    await kernel.commit([addTable(ref)], { expectGeneration: id });
    const error = await kernelError(kernel.commit([addChain(ref, "c")], { expectGeneration: id }));
    expect(error).toMatchObject({ code: "stale", errno: "ERESTART" });
    expect(await kernel.chains(ref)).toEqual([]);
    // An empty batch is compared as well.
    expect(await kernelError(kernel.commit([], { expectGeneration: id }))).toMatchObject({ code: "stale" });
    expect(await kernel.commit([], { expectGeneration: id + 1 })).toMatchObject({ bytes: 0, messages: 0 });
    await kernel.commit([dropTable(ref)]);
  });
});

describe("rights", () => {
  // setpriv removes CAP_NET_ADMIN from the rights that root may have after exec.
  const powerless = ["unshare", "--net", "setpriv", "--bounding-set", "-net_admin", "--"];

  test("without CAP_NET_ADMIN opening fails and says so", async () => {
    const error = await child("open.mjs", [], powerless);
    expect(error).toMatchObject({ code: "no-permission" });
    expect((error as { message: string }).message).toContain("CAP_NET_ADMIN");
  });

  test("in a user namespace, a batch beyond net.core.wmem_max is too large, and no part of it is sent", async () => {
    const result = await child("too-large.mjs", [], ["unshare", "--user", "--map-root-user", "--net"]);
    expect(result).toMatchObject({ large: { code: "too-large" }, tables: 0, small: 3 });
    expect((result as { large: { message: string } }).large.message).toMatch(
      /batch has more than \d+ bytes.*CAP_NET_ADMIN/,
    );
  });
});

describe("a batch that is too large is refused before it fills memory:", () => {
  interface Refused {
    readonly code: string;
    readonly message: string;
    /** Growth of memory, and size of the batch, bytes. */
    readonly grown: number;
    readonly bytes: number;
  }
  const refused = async (wrapper: readonly string[], ...cases: readonly string[]): Promise<Record<string, Refused>> => {
    const result = (await child("too-large-memory.mjs", cases, wrapper)) as Record<string, Refused>;
    expect(result).toMatchObject({ tables: 0 });
    return result;
  };

  test("it does not fit this socket", async () => {
    const { plain, withFlags } = await refused(["unshare", "--user", "--map-root-user", "--net"], "plain", "withFlags");
    // The elements are copied once, which is a quarter of their encoded size.
    expect(plain).toMatchObject({ code: "too-large" });
    expect(plain.grown / plain.bytes).toBeLessThan(0.5);
    expect(withFlags).toMatchObject({ code: "too-large" });
  });

  test("it does not fit any socket: more than 2 GiB", async () => {
    const { huge } = await refused(["unshare", "--net"], "huge");
    expect(huge).toMatchObject({ code: "too-large" });
    expect(huge.message).toMatch(/more than the \d+ bytes that the kernel accepts at once/);
    expect(huge.grown / huge.bytes).toBeLessThan(0.1);
  });
});

describe("namespaces", () => {
  test("a missing namespace is an error", async () => {
    const error = await kernelError(NftKernel.open({ netns: "/run/netns/no such namespace" }));
    expect(error).toMatchObject({ code: "system", errno: "ENOENT", details: { action: "open" } });
    expect(error.message).toContain("/run/netns/no such namespace");
  });

  test("a file that is not a namespace is an error", async () => {
    expect(await kernelError(NftKernel.open({ netns: "/proc/self/status" }))).toMatchObject({
      code: "system",
      errno: "EINVAL",
    });
  });

  test("the calling thread stays in its own namespace, and every socket is in the other", async () => {
    const { netns, kernel } = lab();
    const own = await NftKernel.open();
    const ref = ip("namespaces");
    await kernel.commit([addTable(ref)]);
    expect((await kernel.tables()).map(({ table }) => table)).toEqual(["namespaces"]);
    expect(await own.tables()).toEqual([]);
    const other = await NftKernel.open({ netns });
    expect((await other.tables()).map(({ table }) => table)).toEqual(["namespaces"]);
    await kernel.commit([dropTable(ref)]);
    await own.close();
    await other.close();
  });
});

test("an exception from an operation's getter is passed on unchanged", async () => {
  const { kernel } = lab();
  const odd = {
    op: "add",
    kind: "table",
    family: "ip",
    get table(): string {
      throw new RangeError("mine");
    },
  } as const;
  await expect(kernel.commit([odd])).rejects.toThrow(new RangeError("mine"));
  expect(new KernelError("system", "x", { action: "y" }).faults).toEqual([]);
});
