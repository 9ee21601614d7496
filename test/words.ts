/**
 * Words of a private dialect, with the terms of Kubernetes and nf_tables: a check of sources, test titles and documents. A word is listed
 * because it was once used for something that has its own name.
 */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Words to avoid, and words to use. */
const WORDS: readonly (readonly [not: RegExp, say: string])[] = [
  [/\b(?:set|sets|setting|put) aside\b|\bset-?asides?\b|setAside/i, "quarantine"],
  [/\b(?:in|into) doubt\b|\bdoubts?\b|inDoubt/i, "invalidated"],
  [/\bbreather\b|\.rest\(\)/i, "time slice, yield"],
  [/\blanes?\b/i, "coalescing worker"],
  [/\bsomebody else\b|\bothers' hands\b/i, "another process"],
  [/\b(?:left|leave|leaves|leaving) out\b/i, "ignored, skipped, rejected or dropped"],
  [/\bdone without\b|\bleft alone\b|\bleft as it was\b|\bstays? as it is\b/i, "ignored, kept"],
  [/\blater and later\b|\basked again\b/i, "backoff, retry"],
  [
    /\b(?:not|never|nobody) hear(?:d|s)\b|\bforgotten where we were\b|\breading (?:it|them) again\b/i,
    "events lost, resync",
  ],
  [/\btargets[- ]first\b|targetsFirst/i, "make-before-break"],
  [/\blateness\b|\blate (?:chains?|rows?|rules?|deletions?)\b|lateChains|lateRows/i, "deferred, grace period"],
  [
    /\bthought to hold\b|\bwhat is wanted\b|\bas (?:it is|they are) wanted\b|\bthe wanted (?:state|table|tables)\b/i,
    "desired, observed",
  ],
  [/\bit is tried again\b/i, "retrying"],
  [/\bwhat was last understood\b/i, "last good version kept"],
];

/** Names that stay, because dashboards and alerts use them. */
const KEPT = /nftproxier_services_set_aside(?:_total)?/g;

const SOURCES = "{ts,mjs,cc,h,hpp,md}";

/** Files to check. */
const WHERE: readonly string[] = ["*.md", `{deploy,docs,examples,native,src,test}/**/*.${SOURCES}`];

/** Files that are not checked yet, and files that must contain the words. */
const EXCEPT: readonly string[] = ["**/node_modules/**", "test/words.ts", "test/unit/words.test.ts"];

/** Returns each use of a listed word: "file:line: word; say: …". `globs`: files to check, relative to `root`. */
export function foreignWords(root: string, globs: readonly string[] = WHERE): string[] {
  const files = globSync([...globs], { cwd: root, exclude: [...EXCEPT] }).sort();
  return files.flatMap((file) => {
    const lines = readFileSync(path.join(root, file), "utf8").split("\n");
    return lines.flatMap((line, i) => wordsOf(line).map((found) => `${file}:${i + 1}: ${found}`));
  });
}

/** Returns "word; say: …" for each listed word in a line. */
export function wordsOf(line: string): string[] {
  const text = line.replaceAll(KEPT, "");
  return WORDS.flatMap(([not, say]) => {
    const found = not.exec(text);
    return found === null ? [] : [`"${found[0]}"; say: ${say}`];
  });
}

if (import.meta.main) {
  const found = foreignWords(path.resolve(import.meta.dirname, ".."));
  for (const line of found) console.log(line);
  process.exitCode = found.length === 0 ? 0 : 1;
}
