/**
 * Loads the table in pieces, in a process that can be killed. Prints "writing" before the first transaction, and one line of JSON
 * (`LoadInPieces`) at the end. Arguments: services endpoints elements-of-a-piece [transactions]. With the last one it kills itself after
 * that many transactions.
 */
import { feed, makeObjects, newProxier, openKernel } from "../../bench/proxier.ts";

export interface LoadInPieces {
  readonly transactions: number;
  /** Number of elements written. */
  readonly added: number;
  /** Time from the first transaction to the end of the last, ms. */
  readonly lastedMs: number;
}

const [services, endpoints, pieceElements, mostTransactions] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
let began: number | undefined;
let committed = 0;
const commit = kernel.commit.bind(kernel);
kernel.commit = async (ops, options) => {
  if (began === undefined && options?.dryRun !== true) {
    began = performance.now();
    process.stdout.write("writing\n");
  }
  const result = await commit(ops, options);
  if (options?.dryRun !== true && ++committed === mostTransactions) process.kill(process.pid, "SIGKILL");
  return result;
};
const proxier = newProxier(kernel, { pieceElements });
await feed(proxier, makeObjects(services, endpoints));
const { families } = await proxier.sync();
const outcome = families[0]?.outcome;
if (outcome === undefined || !outcome.ok) throw new Error("the write failed");
const { transactions, operations } = outcome.result;
const lastedMs = performance.now() - (began ?? 0);
const result: LoadInPieces = { transactions, added: operations.element.add, lastedMs };
process.stdout.write(`${JSON.stringify(result)}\n`);
await proxier.stop();
await kernel.close();
