/** Writes the output of commands to a terminal, a file, or a pipe whose reader may exit at any time (`| head`). */
import { printableLines } from "../base/printable.js";

export { UserError } from "../base/user-error.js";

/** Whether writing failed because the reader is gone, which is not a failure (`list | head`). */
function isReaderGone(error: Error): boolean {
  return "code" in error && (error.code === "EPIPE" || error.code === "ERR_STREAM_DESTROYED");
}

/**
 * If the reader exits, or the disk is full, the program must not end with a stack, even if nothing waits for the write (the
 * help).
 */
export function handleStdoutErrors(): void {
  process.stdout.on("error", (error: Error) => {
    if (isReaderGone(error)) return;
    writeError(`writing to stdout failed: ${error.message}`);
    process.exit(1);
  });
}

/** Writes a message to stderr. */
export function writeError(message: string, name = "nft-proxier"): void {
  process.stderr.write(printableLines(`${name}: ${message}\n`));
}

/**
 * Writes text to stdout. Resolves to true when the reader, however slow, has taken all of it, or to false if it is gone. Escapes control
 * characters except line feeds. The caller must escape those within a line (`linesText`).
 */
export function writeOut(text: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    process.stdout.write(printableLines(text), (error) => {
      if (error == null) resolve(true);
      else if (isReaderGone(error)) resolve(false);
      else reject(error);
    });
  });
}
