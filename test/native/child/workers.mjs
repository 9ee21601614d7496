import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

/**
 * Runs a script (its import.meta.url) in worker threads, several in parallel and then one after another. Workers with
 * `endless` in their workerData are terminated in the middle of their work, after they have sent a message. Resolves
 * with the exit codes.
 */
export async function runWorkers(script) {
  const run = (number, endless) =>
    new Promise((resolve, reject) => {
      const worker = new Worker(fileURLToPath(script), { workerData: { number, endless } });
      worker.on("message", () => endless && setTimeout(() => void worker.terminate(), 5 * number));
      worker.on("error", reject);
      worker.on("exit", resolve);
    });
  const codes = await Promise.all([run(1, false), run(2, false), run(3, true), run(4, true)]);
  const again = [await run(5, false), await run(6, true), await run(7, false)];
  return { codes, again };
}
