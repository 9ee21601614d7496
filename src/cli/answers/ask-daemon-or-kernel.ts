import { DaemonAway } from "../../daemon/control/client.js";
import type { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { writeError } from "../stdio.js";
import { DaemonAnswers } from "./daemon-answers.js";

/**
 * Asks the daemon. If no daemon answers, asks the kernel, and writes to stderr that it does not show `lacking`. A user who may not ask the
 * daemon may not ask the kernel either.
 * @param socket path of the daemon's control socket. Default: the one of this network namespace.
 */
export async function askDaemonOrKernel<T>(
  socket: string | undefined,
  lacking: string,
  askDaemon: (answers: DaemonAnswers) => Promise<T>,
  askKernel: (kernel: NftKernel, away: DaemonAway) => Promise<T>,
): Promise<T> {
  try {
    return await askDaemon(new DaemonAnswers(socket));
  } catch (error) {
    if (!(error instanceof DaemonAway) || error.remedy === undefined) throw error;
    const { NftKernel } = await import("../../nft/kernel/nft-kernel.js");
    const kernel = await NftKernel.open();
    try {
      const answer = await askKernel(kernel, error);
      writeError(`${error.message} The kernel alone does not show ${lacking}.`);
      return answer;
    } finally {
      await kernel.close();
    }
  }
}
