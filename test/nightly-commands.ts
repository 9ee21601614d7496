/** The commands that `npm run test:nightly` runs, and what it prints of one that has ended. */
import { debianKernels } from "./kernels/debian-kernels.ts";

export interface NightlyCommand {
  /** Name in `--only`, and of its output's file. */
  readonly name: string;
  readonly words: readonly string[];
  /** It is killed after this time. */
  readonly limitMinutes: number;
}

const DAY = 24 * 60 * 60_000;

/** A different kernel each night, all of them in turns. */
const kernelOfTonight = debianKernels[Math.floor(Date.now() / DAY) % debianKernels.length].name;

const npm = (...words: readonly string[]): readonly string[] => ["npm", "run", "--silent", ...words];

/** In this order. The limits are three times what a command takes on two idle cores, with all that it downloads and builds the first time. */
export const nightlyCommands: readonly NightlyCommand[] = [
  { name: "longer", words: ["node", "test/run.ts", "--nightly"], limitMinutes: 150 },
  { name: "nft", words: npm("test:nft"), limitMinutes: 15 },
  { name: "package", words: npm("test:package"), limitMinutes: 30 },
  { name: "rollback", words: npm("test:rollback"), limitMinutes: 90 },
  { name: "asan", words: npm("test:asan"), limitMinutes: 75 },
  {
    name: "kernels",
    words: npm("test:kernels", "--", "--only", kernelOfTonight, "--minutes", "75"),
    limitMinutes: 120,
  },
  { name: "arm64", words: npm("test:kernels", "--", "--arch", "arm64"), limitMinutes: 90 },
];

/** How a command ended. */
export interface Ended {
  readonly started: Date;
  readonly minutes: number;
  /** Exit code; null if a signal ended it. */
  readonly code: number | null;
  /** It was killed at its limit. */
  readonly isOverdue: boolean;
  readonly output: string;
}

export interface NightlyLine {
  readonly ok: boolean;
  readonly text: string;
}

/** A tier in the summary of test/run.ts, or a kernel in that of test/kernels/run.ts. */
const RESULT =
  /^(?<tier>\S+( +\S+:)?) +(?<result>\d+ passed, (?<failed>\d+) failed, \d+ skipped) in (?<took>[\d.]+ (s|min))$/;

/** One line per tier that the command's summary lists, and one for the command if it failed otherwise or has no summary. */
export function nightlyLines(command: NightlyCommand, ended: Ended): readonly NightlyLine[] {
  const date = ended.started.toISOString().slice(0, 10);
  const line = (tier: string, result: string, took: string, ok: boolean): NightlyLine => ({
    ok,
    text: `${date}  ${command.name.padEnd(8)}  ${tier.padEnd(24)}  ${result}, ${took}`,
  });
  const [, summary = ""] = ended.output.split(/^=== summary$/m);
  const tiers = summary.split("\n").flatMap((text) => {
    const { tier, result, failed, took } = RESULT.exec(text)?.groups ?? {};
    if (tier === undefined || result === undefined || took === undefined) return [];
    return [line(tier.replace(/:$/, ""), result, took, failed === "0")];
  });
  const isWhole = tiers.length > 0 && !(ended.code !== 0 && tiers.every(({ ok }) => ok));
  if (isWhole) return tiers;
  const how = ended.isOverdue
    ? `was still running after ${command.limitMinutes} min`
    : `ended with ${ended.code ?? "a signal"}${tiers.length > 0 ? "" : ", without a summary"}`;
  return [
    ...tiers,
    line("–", `failed: ${how}; see build/nightly/${command.name}.log`, `${ended.minutes.toFixed(1)} min`, false),
  ];
}
