/** The known name that a mistyped one was probably meant to be. Returns undefined if none is near. */
export function closest(name: string, known: Iterable<string>): string | undefined {
  const target = name.toLowerCase();
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(target, candidate.toLowerCase());
    // Two edits of a short name leave little of it, unless letters are swapped.
    const isNear = distance * 2 < name.length || lettersOf(candidate) === lettersOf(name);
    if (distance < bestDistance && isNear) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

const lettersOf = (name: string): string => name.toLowerCase().split("").toSorted().join("");

/** The number of insertions, deletions and substitutions that turn `a` into `b` (Levenshtein). */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitute = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substitute, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
