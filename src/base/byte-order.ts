import { endianness } from "node:os";

/** Whether this machine stores the lowest byte of a number first. */
export const LITTLE_ENDIAN = endianness() === "LE";
