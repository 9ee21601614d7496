/** The smallest edit from one list of rules to another. Pure. */

/** One step of an edit script, in the order of the wanted list. */
export type Edit =
  | { readonly edit: "keep"; readonly from: number; readonly to: number }
  | { readonly edit: "delete"; readonly from: number }
  | { readonly edit: "add"; readonly to: number };

/** Above this many comparisons the middle part is replaced as a whole. */
const MAX_COMPARISONS = 250_000;

/** Longest common subsequence, behind the common head and tail that most changes leave. */
export function editScript<A, B>(from: readonly A[], to: readonly B[], same: (a: A, b: B) => boolean): Edit[] {
  let head = 0;
  while (head < from.length && head < to.length && same(from[head], to[head])) head++;
  let tail = 0;
  while (
    tail < from.length - head &&
    tail < to.length - head &&
    same(from[from.length - 1 - tail], to[to.length - 1 - tail])
  )
    tail++;
  const edits: Edit[] = [];
  for (let i = 0; i < head; i++) edits.push({ edit: "keep", from: i, to: i });
  edits.push(...middle(from, to, head, from.length - tail, to.length - tail, same));
  for (let i = tail; i > 0; i--) edits.push({ edit: "keep", from: from.length - i, to: to.length - i });
  return edits;
}

function middle<A, B>(
  from: readonly A[],
  to: readonly B[],
  start: number,
  fromEnd: number,
  toEnd: number,
  same: (a: A, b: B) => boolean,
): Edit[] {
  const rows = fromEnd - start;
  const columns = toEnd - start;
  const width = columns + 1;
  // lengths[i * width + j]: longest common subsequence of what follows from[start + i] and to[start + j].
  const lengths = new Uint32Array(rows * columns <= MAX_COMPARISONS ? (rows + 1) * width : 0);
  const equal = new Uint8Array(lengths.length);
  for (let i = rows - 1; i >= 0 && lengths.length > 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const at = i * width + j;
      equal[at] = same(from[start + i], to[start + j]) ? 1 : 0;
      lengths[at] = equal[at] === 1 ? lengths[at + width + 1] + 1 : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  const edits: Edit[] = [];
  let i = 0;
  let j = 0;
  while (i < rows || j < columns) {
    const at = i * width + j;
    if (i < rows && j < columns && equal[at] === 1) edits.push({ edit: "keep", from: start + i++, to: start + j++ });
    else if (i < rows && (j === columns || (lengths[at + width] ?? 0) >= (lengths[at + 1] ?? 0)))
      edits.push({ edit: "delete", from: start + i++ });
    else edits.push({ edit: "add", to: start + j++ });
  }
  return edits;
}
