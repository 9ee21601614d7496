/** An error that the user can correct. Its message names the error, its place and the remedy. No stack is shown. */
export class UserError extends Error {
  override readonly name: string = "UserError";
}

/** An invalid command line, or words that are invalid in it. The exit code is 2. */
export class UsageError extends UserError {
  override readonly name = "UsageError";
}
