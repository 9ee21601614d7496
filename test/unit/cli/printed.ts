import { onTestFinished, vi } from "vitest";

/** Output of this process, which does not reach the terminal. */
export interface Printed {
  out: string;
  err: string;
}

/** Catches the output until the current test ends. Call it in `beforeEach`. */
export function catchOutput(): Printed {
  const printed: Printed = { out: "", err: "" };
  const catching = (to: keyof Printed) =>
    vi.spyOn(process[`std${to}`], "write").mockImplementation((text: unknown, ...rest: unknown[]) => {
      printed[to] += String(text);
      const done = rest.at(-1);
      if (typeof done === "function") (done as () => void)();
      return true;
    });
  const spies = [catching("out"), catching("err")];
  onTestFinished(() => spies.forEach((spy) => spy.mockRestore()));
  return printed;
}
