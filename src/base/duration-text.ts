/** Formats a duration with its two largest units, like kubectl: "3d4h", "2h5m", "17s", "250ms". */
export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const units: readonly (readonly [string, number])[] = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
    ["s", 1000],
  ];
  const first = units.findIndex(([, size]) => ms >= size);
  let left = ms;
  let text = "";
  for (const [unit, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) text += `${count}${unit}`;
  }
  return text;
}
