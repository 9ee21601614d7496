/** Tests that `npm test` leaves to `npm run test:all`: each takes many seconds, and another test shows the behaviour in short. */
import { describe, test } from "vitest";
import { isShort } from "../lab/length.ts";

const nothing = Object.assign(() => undefined, { each: () => () => undefined, for: () => () => undefined });

export const longTest = isShort ? (nothing as unknown as typeof test) : test;
export const longDescribe = isShort ? (nothing as unknown as typeof describe) : describe;
