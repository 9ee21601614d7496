import { reasonOf } from "../../base/unknown.js";
import { DaemonAnswers } from "../answers/daemon-answers.js";
import { UserError, writeOut } from "../stdio.js";

/** Time limit of the page, ms. */
const ANSWER_MS = 5_000;

/** `page`: prints the URL of the status page once it answers. stderr says how to reach it from another machine. */
export async function pageCommand(socket: string | undefined): Promise<number> {
  const { page, nodeName } = await new DaemonAnswers(socket).status();
  if (page === undefined) {
    throw new UserError(
      "the daemon serves no status page. Start it without `run`, with metricsBindAddress on loopback or with --status-page",
    );
  }
  await checkAnswer(page);
  await writeOut(`${page}\n`);
  const { host, port } = new URL(page);
  process.stderr.write(
    `from another machine: ssh -L ${port}:${host} ${nodeName}, or kubectl -n kube-system port-forward POD ${port}; then open http://127.0.0.1:${port}/status\n`,
  );
  return 0;
}

async function checkAnswer(page: string): Promise<void> {
  let reason: string;
  try {
    const { status } = await fetch(page, { method: "HEAD", signal: AbortSignal.timeout(ANSWER_MS) });
    if (status === 200) return;
    reason = `it answers with status ${status}`;
  } catch (error) {
    reason = reasonOf(error instanceof Error && error.cause !== undefined ? error.cause : error);
  }
  throw new UserError(`${page} cannot be read: ${reason}. \`nft-proxier status\` says whether the port is served`);
}
