/** Files generated from the command line's definitions: shells complete all of it, and the manual page lists all of it. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { completionScript } from "../../../src/cli/commands/completion.js";
import { manPage } from "../../../src/cli/commands/man.js";
import { programNamed } from "../../../src/cli/commands/program.js";
import { allCommands, shownFlags } from "../../../src/cli/command.js";
import { flagTerm } from "../../../src/cli/read-flags.js";
import { patience } from "../../lab/patience.ts";
import { temporaryDirectory } from "../../support/temporary-directory.ts";

const program = programNamed();

/** Returns bash's completions of the last word of each line. One bash handles all lines: starting hundreds takes minutes on busy cores. */
function offeredAfter(lines: readonly (readonly string[])[]): string[][] {
  const script = `${completionScript("bash", program)}
    nft-proxier() { [[ "$*" == "services -o name" ]] && printf "service/%s\\n" default/web shop/api; }
    while read -r count; do
      mapfile -t -n "$count" words
      COMP_WORDS=(nft-proxier "\${words[@]}"); COMP_CWORD=$count; COMPREPLY=()
      _nft_proxier
      printf "%s\\n" "\${COMPREPLY[*]}"
    done`;
  const input = lines.map((words) => `${words.length}\n${words.join("\n")}\n`).join("");
  const text = execFileSync("bash", ["-c", script], { encoding: "utf8", input });
  return text.split("\n", lines.length).map((line) => line.split(" "));
}

test("commands, their options, and the values of enumerated options are completed", () => {
  const all = (...words: readonly string[]): unknown => expect.arrayContaining([...words]);
  const cases: readonly (readonly [words: readonly string[], offers: unknown])[] = [
    [["st"], ["status"]],
    [["--vers"], ["--version"]],
    [[""], all("run", "services", "conntrack", "completion", "--config")],
    [["services", "--no"], ["--no-headers"]],
    [
      ["services", "-o", ""],
      ["table", "wide", "json", "yaml", "name"],
    ],
    [["services", "default/web", "--output", "w"], ["wide"]],
    [["completion", ""], all("bash", "zsh", "fish")],
    [["conntrack", "l"], ["list"]],
    [["conntrack", "list", "--ser"], ["--service"]],
    [["run", "--manifests", "/pro"], ["/proc"]],
    [["services", "sh"], ["shop/api"]],
    [["top", "default/web", "shop"], ["shop/api"]],
    [["explain", "10.244.0.5", "def"], ["default/web"]],
    [["conntrack", "list", "--service", "d"], ["default/web"]],
  ];
  expect(offeredAfter(cases.map(([words]) => words))).toEqual(cases.map(([, offers]) => offers));
});

test("every option of every command is in each script and in the manual page", () => {
  const texts = { fish: completionScript("fish", program), man: manPage(program, "1.2.3") };
  const outline = allCommands(program);
  expect(outline.length).toBeGreaterThan(12);
  const lines: string[][] = [];
  for (const command of outline) {
    const { path } = command;
    expect(texts.man).toContain(`nft\\-proxier ${path.replaceAll("-", "\\-")}`.trimEnd());
    for (const flag of shownFlags(command)) {
      expect(texts.man).toContain(flagTerm(flag).replaceAll("-", "\\-"));
      for (const name of [`--${flag.name}`, ...(flag.short === undefined ? [] : [`-${flag.short}`])]) {
        expect(texts.fish).toContain(name.startsWith("--") ? ` -l ${name.slice(2)} ` : ` -s ${name.slice(1)} `);
        lines.push([...path.split(" ").filter((word) => word !== ""), name]);
      }
    }
  }
  expect(lines.length).toBeGreaterThan(100);
  for (const [i, offers] of offeredAfter(lines).entries()) expect(offers).toContain(lines[i].at(-1));
});

test.skipIf(!existsSync("/usr/bin/groff"))("groff reads the manual page without a warning", () => {
  const { stdout, stderr, status } = spawnSync("groff", ["-man", "-ww", "-Tutf8", "-P-cbou"], {
    input: manPage(program, "1.2.3"),
    encoding: "utf8",
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toMatch(/nft[-‐−]proxier status \[options\]/);
  expect(stdout.replaceAll(/\s+/g, " ")).toContain("output format: table, wide, json, yaml or name (default table)");
});

/** Prints each line as it is after a Tab, in an interactive zsh. */
const ZSH = `
zmodload zsh/zpty
zpty shell "TERM=dumb HOME=/nonexistent zsh -f -i"
zpty -w shell "PS1=; source $1; show() { print -r -- \\"<<\\$BUFFER>>\\"; BUFFER= }; zle -N show; bindkey '^X' show; print re''ady"
zpty -r -m shell line "*ready*"
for words in "\${@:2}"; do
  zpty -w -n shell "$words"$'\\t\\C-x'
  zpty -r -m shell line "*<<*>>*"
  print -r -- "\${\${line##*<<}%%>>*}"
done
zpty -d shell`;

async function withScript<T>(shell: "zsh" | "fish", use: (path: string) => T): Promise<T> {
  const directory = temporaryDirectory();
  const path = join(directory, "script");
  await writeFile(path, completionScript(shell, program));
  return use(path);
}

/** Words, and their completion. */
const COMPLETED = [
  ["nft-proxier st", "status"],
  ["nft-proxier services --no", "--no-headers"],
  ["nft-proxier services default/web --output w", "wide"],
  ["nft-proxier conntrack l", "list"],
  ["nft-proxier conntrack list --ser", "--service"],
  ["nft-proxier completion z", "zsh"],
] as const;

test.skipIf(!existsSync("/usr/bin/zsh"))("a zsh (Debian's package zsh, if installed) completes the same", async () => {
  const lines = COMPLETED.map(([line]) => line);
  const { stdout } = await withScript("zsh", (path) =>
    spawnSync("zsh", ["-f", "-c", ZSH, "zsh", path, ...lines], { encoding: "utf8", timeout: patience(120_000) }),
  );
  expect(
    stdout
      .trimEnd()
      .split("\n")
      .map((line) => line.trim().split(" ").at(-1)),
  ).toEqual(COMPLETED.map(([, word]) => word));
});

test.skipIf(!existsSync("/usr/bin/fish"))(
  "a fish (Debian's package fish, if installed) completes the same",
  async () => {
    const complete = COMPLETED.map(([line]) => `complete -C '${line}'`).join("\n");
    const { stdout, stderr } = await withScript("fish", (path) =>
      spawnSync("fish", ["--no-config", "-c", `source ${path}\n${complete}`], {
        encoding: "utf8",
        timeout: patience(120_000),
      }),
    );
    expect(stderr).toBe("");
    expect(
      stdout
        .trimEnd()
        .split("\n")
        .map((line) => line.split("\t")[0]),
    ).toEqual(COMPLETED.map(([, word]) => word));
  },
);
