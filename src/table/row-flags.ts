/** What is noted of a PackedMap row (element-set.ts, row-states.ts). */
export const WANTED = 1;
export const KERNEL = 2;
/** Not wanted, but to stay in the kernel for a while. */
export const LATER = 4;
/** Wanted, and the kernel lacks it or holds other data. */
export const ADD = 8;
/** In the list of dirty rows: one bit for the current list, the other for the one that is being packed. */
export const DIRTY_EVEN = 16;
export const DIRTY_ODD = 32;
/** While a dump is taken over: was thought to be in the kernel, and has not turned up yet. */
export const EXPECTED = 64;
