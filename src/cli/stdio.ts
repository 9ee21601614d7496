/** What commands print: to a terminal, a file, or a pipe whose reader may go at any time (`| head`). */
import { printableLines } from "../base/printable.js";

/** Something that the user can correct: its message says what, where, and what to do. No stack is shown. */
export class UserError extends Error {
  override readonly name = "UserError";
}

/** Whether writing failed because the reader is gone: `list | head` is a use, not a failure. */
export function isReaderGone(error: Error): boolean {
  return "code" in error && (error.code === "EPIPE" || error.code === "ERR_STREAM_DESTROYED");
}

/** A reader that goes must not end the program with a stack, also where nothing waits for the write (the help). */
export function ignoreGoneReader(): void {
  process.stdout.on("error", (error: Error) => {
    if (!isReaderGone(error)) throw error;
  });
}

/** Writes a message for people to stderr. */
export function writeError(message: string, name = "nft-proxier"): void {
  process.stderr.write(printableLines(`${name}: ${message}\n`));
}

/**
 * Resolves when the reader, however slow, has taken all of it; with false when it is gone. Control characters are escaped. Line feeds stay:
 * who puts lines together escapes those within a line (`linesText`).
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
