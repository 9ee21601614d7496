/** "99.9 %", rounded down, so that only all of `whole` is 100.0 %. */
export function percentText(part: number, whole: number): string {
  return `${whole === 0 ? "0.0" : (Math.floor((1000 * part) / whole) / 10).toFixed(1)} %`;
}
