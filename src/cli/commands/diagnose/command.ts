import { counted } from "../../../base/counted.js";
import { readFile, writeFile } from "node:fs/promises";
import { hostname, networkInterfaces, release } from "node:os";
import { gzipSync } from "node:zlib";
import { reasonOf } from "../../../base/unknown.js";
import type { Diagnosis } from "../../../observe/status-report.js";
import { NftKernel } from "../../../nft/kernel/nft-kernel.js";
import { FORWARDING, readSysctl } from "../../../node/packet-settings.js";
import { kernelStatus } from "../../answers/kernel-answers.js";
import type { DiagnoseOptions } from "../question-commands.js";
import { DaemonAnswers } from "../../answers/daemon-answers.js";
import { UserError, writeError } from "../../stdio.js";
import { programVersion } from "../../version.js";
import { redactText, withoutSecrets } from "../../../base/redact.js";
import { kernelJson, rulesetOf } from "./kernel-ruleset.js";
import { type ArchivedFile, tarOf } from "./tar.js";

const SYSCTLS = [
  ...Object.values(FORWARDING),
  "net.ipv4.conf.all.rp_filter",
  "net.ipv4.icmp_ratelimit",
  "net.netfilter.nf_conntrack_count",
  "net.netfilter.nf_conntrack_max",
  "net.netfilter.nf_conntrack_buckets",
  "net.netfilter.nf_conntrack_tcp_loose",
  "net.netfilter.nf_conntrack_acct",
  "net.bridge.bridge-nf-call-iptables",
  "net.bridge.bridge-nf-call-ip6tables",
  "net.core.rmem_max",
];

/**
 * `diagnose [-o FILE]`: writes one gzipped tar file for a bug report. Its `missing.txt` and stderr name the parts that could not be collected. Exit
 * code 1 if the kernel cannot be read, or the file cannot be written. Otherwise exit code 0.
 */
export async function diagnoseCommand({ output, socket }: DiagnoseOptions): Promise<number> {
  const kernel = await NftKernel.open();
  const at = new Date();
  const name = `nft-proxier-${hostname()}-${at.toISOString().replaceAll(/[-:]|\.\d+/g, "")}`;
  try {
    const { files, missing } = await collect(kernel, socket);
    const named = files.map((file) => ({ ...file, name: `${name.slice(0, 70)}/${file.name}` }));
    const archive = gzipSync(tarOf(named, at.getTime()));
    const path = output ?? `${name}.tar.gz`;
    await write(path, archive);
    for (const line of missing) writeError(`not in the file: ${line}`);
    if (path !== "-") writeError(`wrote ${path} (${counted(archive.length, "byte")}); read it before you send it`);
    return 0;
  } finally {
    await kernel.close();
  }
}

async function write(path: string, archive: Buffer): Promise<void> {
  if (path === "-") {
    await new Promise<void>((resolve) => process.stdout.write(archive, () => resolve()));
    return;
  }
  try {
    // Only root may see names and addresses of services, as with the socket.
    await writeFile(path, archive, { mode: 0o600 });
  } catch (error) {
    throw new UserError(`${reasonOf(error)}; use -o FILE for another file, or -o - for stdout`, { cause: error });
  }
}

const NO_ANSWER = { message: "no daemon answered", remedy: "read missing.txt, which has the reason" };

interface Collected {
  readonly files: readonly ArchivedFile[];
  /** Names of files that could not be collected, with the reasons. */
  readonly missing: readonly string[];
}

async function collect(kernel: NftKernel, socket: string | undefined): Promise<Collected> {
  const files: ArchivedFile[] = [];
  const missing: string[] = [];
  const add = async (name: string, read: () => Promise<string>): Promise<void> => {
    try {
      files.push({ name, text: redactText(await read()) });
    } catch (error) {
      missing.push(`${name}: ${reasonOf(error)}`);
    }
  };
  const json = (value: unknown): string => `${kernelJson(withoutSecrets(value))}\n`;
  await add("versions.json", async () =>
    json({ program: programVersion(), node: process.version, kernel: release(), os: await osRelease() }),
  );
  const answers = new DaemonAnswers(socket);
  for (const what of ["status", "events", "services"] as const) {
    await add(`${what}.json`, async () => json(await answers[what]()));
  }
  let diagnosis: Diagnosis | undefined;
  await add("configuration.json", async () => {
    diagnosis = await answers.diagnosis();
    return json(diagnosis.configuration);
  });
  if (diagnosis === undefined) {
    await add("kernel-status.json", async () => json(await kernelStatus(kernel, NO_ANSWER)));
  } else {
    const { flags, metrics, log } = diagnosis;
    await add("flags.txt", () => Promise.resolve(flags));
    await add("metrics.txt", () => Promise.resolve(metrics));
    await add("log.txt", () => Promise.resolve(log));
  }
  await add("ruleset.json", async () => json(await rulesetOf(kernel)));
  await add("sysctls.json", async () => json(await sysctls()));
  await add("interfaces.json", () => Promise.resolve(json(networkInterfaces())));
  for (const file of ["route", "ipv6_route", "netlink"]) {
    await add(`proc-net-${file}.txt`, () => readFile(`/proc/net/${file}`, "utf8"));
  }
  if (missing.length > 0) files.push({ name: "missing.txt", text: redactText(`${missing.join("\n")}\n`) });
  return { files, missing };
}

async function osRelease(): Promise<string> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  return /^PRETTY_NAME="?([^"\n]*)/m.exec(text)?.[1] ?? "unknown";
}

async function sysctls(): Promise<Readonly<Record<string, number | null>>> {
  const values = await Promise.all(SYSCTLS.map(async (name) => [name, (await readSysctl(name)) ?? null] as const));
  return Object.fromEntries(values);
}
