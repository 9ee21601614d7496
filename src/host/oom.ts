import { type KernelFiles, setNumber } from "./kernel-number.js";

/** Tells the kernel how willingly it may end this process when memory runs out, from -1000 (never) to 1000. */
export async function applyOomScore(score: number | undefined, files: KernelFiles): Promise<void> {
  if (score === undefined) return;
  await setNumber(files, {
    file: "proc/self/oom_score_adj",
    wanted: score,
    remedy: "give the process CAP_SYS_RESOURCE, or set oomScoreAdj to the present value",
  });
}
