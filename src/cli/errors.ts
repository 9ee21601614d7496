/** Something that the user can mend: its message says what, where, and what to do. No stack is shown. */
export class UserError extends Error {
  override readonly name = "UserError";
}
