/** Pearson's chi-squared test: how likely is this distribution for a fair draw? */

/**
 * Anything less likely is not chance. The exact distribution of counts has a longer tail than chi-squared. Summed over all outcomes, the draws
 * of these tests (144 to 1,200, with shares of 1/9 to 5/8) are that uneven with a probability of 3e-12 to 1e-11. There are 55 such checks,
 * so fewer than 6 in 10¹⁰ runs fail by chance.
 */
export const UNLIKELY = 1e-12;

/** ln Γ(x) for x > 0 (Lanczos, g = 7, n = 9; relative error below 1e-13). */
function logGamma(x: number): number {
  const coefficients = [
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
  ];
  const y = x - 1;
  const sum = coefficients.reduce((total, c, i) => total + c / (y + i + 1), 0.99999999999980993);
  const t = y + 7.5;
  return 0.5 * Math.log(2 * Math.PI) + (y + 0.5) * Math.log(t) - t + Math.log(sum);
}

/** The regularised upper incomplete gamma function Q(a, x): by series below a + 1, by continued fraction above. */
function upperGamma(a: number, x: number): number {
  if (x <= 0) return 1;
  const scale = Math.exp(a * Math.log(x) - x - logGamma(a));
  if (x < a + 1) {
    let term = 1 / a;
    let sum = term;
    for (let n = 1; n < 10_000 && term > sum * 1e-16; n++) {
      term *= x / (a + n);
      sum += term;
    }
    return 1 - scale * sum;
  }
  let b = x + 1 - a;
  let c = Number.MAX_VALUE;
  let d = 1 / b;
  let h = d;
  for (let n = 1; n < 10_000; n++) {
    const an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return scale * h;
}

/** The probability that a chi-squared variable with `degrees` degrees of freedom is at least `statistic`. */
export function chiSquaredTail(statistic: number, degrees: number): number {
  return upperGamma(degrees / 2, statistic / 2);
}

/** The probability that a fair draw spreads at least as unevenly as `counts` (one count per choice, zeros included). */
export function evenSpreadProbability(counts: readonly number[]): number {
  return weightedSpreadProbability(
    counts,
    counts.map(() => 1),
  );
}

/** The same for a draw with weights. */
export function weightedSpreadProbability(counts: readonly number[], weights: readonly number[]): number {
  if (counts.length < 2) throw new RangeError("a spread needs two choices");
  const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);
  const expected = weights.map((weight) => (sum(counts) * weight) / sum(weights));
  const statistic = sum(counts.map((count, i) => (count - expected[i]) ** 2 / expected[i]));
  return chiSquaredTail(statistic, counts.length - 1);
}
