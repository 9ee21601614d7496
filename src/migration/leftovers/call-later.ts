/** Calls back once after `ms`, and returns a function that cancels it. */
export type Later = (work: () => void, ms: number) => () => void;

/** The timer does not keep the process alive. */
export const callLater: Later = (work, ms) => {
  const timer = setTimeout(work, ms);
  timer.unref();
  return () => clearTimeout(timer);
};
