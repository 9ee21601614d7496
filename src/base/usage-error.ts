/** An invalid command line, or words that are invalid in it. The message names the error. The exit code is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
