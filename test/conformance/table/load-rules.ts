/** Gives rules to nft, in a namespace. */
import { spawnSync, type SpawnSyncReturns } from "node:child_process";
import { nftCommand } from "../../nft-versions/debian-nft.ts";

/** The suite of Debian whose nft is used. Absent for the machine's. */
export const SUITE = process.env.CORPUS_NFT;
/** A later nft crashes with the machine's extensions of iptables, and names them if it finds none. */
export const NFT =
  SUITE === undefined ? ["nft"] : ["env", "XTABLES_LIBDIR=/nonexistent", ...nftCommand({ name: SUITE })];

export function runNft(
  { path }: { readonly path: string },
  words: readonly string[],
  input = "",
): SpawnSyncReturns<string> {
  return spawnSync("nsenter", [`--net=${path}`, ...NFT, ...words], { input, encoding: "utf8", maxBuffer: 1 << 26 });
}

/** Returns nft's messages, or undefined if it loaded the text. */
export function nft(namespace: { readonly path: string }, input: string): string | undefined {
  const run = runNft(namespace, ["-f", "-"], input);
  return run.status === 0 ? undefined : `${run.stderr}${run.signal ?? ""}`;
}

/**
 * Gives rules to nft, a line for each index, and collects why it refuses some. It stops at its first messages, and aborts at some rules: these are
 * skipped, and the others are given again.
 */
export function loadRules(
  namespace: { readonly path: string },
  indices: readonly number[],
  line: (index: number) => string,
  refused: Map<number, string>,
): void {
  if (indices.length === 0) return;
  const messages = nft(namespace, `${indices.map(line).join("\n")}\n`);
  if (messages === undefined) return;
  const found = [...messages.matchAll(/:(\d+):[\d-]+: Error: (.*)/g)];
  if (found.length === 0 && indices.length === 1) return void refused.set(indices[0], `nft aborts: ${messages}`);
  // After some rules, nft 1.1.7 refuses the syntax of all others.
  if (indices.length > 1 && (found.length === 0 || found.some(([, , why]) => why.includes("unexpected junk")))) {
    const middle = indices.length >> 1;
    loadRules(namespace, indices.slice(0, middle), line, refused);
    return loadRules(namespace, indices.slice(middle), line, refused);
  }
  for (const [, number, why] of found) refused.set(indices[Number(number) - 1], why);
  loadRules(
    namespace,
    indices.filter((index) => !refused.has(index)),
    line,
    refused,
  );
}
