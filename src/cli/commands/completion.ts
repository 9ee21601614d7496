/**
 * Scripts that complete the command line in a shell. They contain all words, so no program runs at each key. Only the names of services come
 * from the daemon.
 */
import { allCommands, type Command, describe, shownFlags } from "../command.js";
import type { Flag } from "../read-flags.js";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

const PROGRAM = "nft-proxier";
/** Prints the names of the daemon's services. */
const SERVICES = `${PROGRAM} services -o name 2>/dev/null | sed -n s,^service/,,p`;

type Placed = ReturnType<typeof allCommands>[number];

/** "-o" and "--output" */
function namesOf({ name, short }: Flag): string[] {
  return [...(short === undefined ? [] : [`-${short}`]), `--${name}`];
}

/** Values of the first argument, if they are few. */
function firstWords({ arguments: [first] = [] }: Command): readonly string[] {
  return first?.choices ?? [];
}

function takesService({ arguments: declared = [] }: Command): boolean {
  return declared.some(({ term }) => /service|packet/.test(term));
}

/** Returns the kind of a flag's value: a file, a service or one of some words. Returns undefined if it takes no value. */
function valueOf({ type, placeholder, choices = [] }: Flag): "files" | "services" | readonly string[] | undefined {
  if (type === "bool" || type === "version") return undefined;
  if (/^(?:file|dir|path)$/.test(placeholder)) return "files";
  return placeholder === "service" ? "services" : choices;
}

/** @param program with all commands below it. */
export function completionScript(shell: Shell, program: Command): string {
  const outline = allCommands(program);
  switch (shell) {
    case "bash":
      return bash(outline);
    case "zsh":
      // zsh runs bash's completion functions (bashcompinit, zshcompsys(1)).
      return `#compdef ${PROGRAM}\nautoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n${bash(outline)}`;
    case "fish":
      return fish(outline);
  }
}

function bash(outline: readonly Placed[]): string {
  const paths = outline.flatMap(({ path }) =>
    path === "" ? [] : [`      "${parentOf(path)}:${lastOf(path)}") path="${path}" ;;`],
  );
  const words = outline.map((command) => {
    const services = takesService(command) ? [`$(_nft_proxier_services)`] : [];
    const names = (command.commands ?? []).map(({ name }) => name);
    const all = [...services, ...names, ...firstWords(command), ...shownFlags(command).flatMap(namesOf)];
    return `    "${command.path}") words="${all.join(" ")}" ;;`;
  });
  const values = outline.flatMap((command) =>
    shownFlags(command).flatMap((flag) => {
      const value = valueOf(flag);
      if (value === undefined) return [];
      const patterns = namesOf(flag).map((name) => `"${command.path}:${name}"`);
      const offers = value === "services" ? "$(_nft_proxier_services)" : value === "files" ? "" : value.join(" ");
      const compgen = value === "files" ? "-f" : `-W "${offers}"`;
      const files = value === "files" ? "compopt -o default 2>/dev/null; " : "";
      return [`    ${patterns.join("|")}) ${files}COMPREPLY=($(compgen ${compgen} -- "$current")); return ;;`];
    }),
  );
  return `# ${PROGRAM} completion for bash: source <(${PROGRAM} completion bash)
_nft_proxier_services() {
  [[ "$current" == -* ]] || ${SERVICES}
}
_nft_proxier() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" path="" words="" word
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    case "$path:$word" in
${paths.join("\n")}
    esac
  done
  case "$path:$before" in
${values.join("\n")}
  esac
  case "$path" in
${words.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _nft_proxier ${PROGRAM}
`;
}

function fish(outline: readonly Placed[]): string {
  const lines = outline.flatMap((command) => {
    const condition = `-n '${conditionOf(command)}'`;
    const complete = (...rest: readonly string[]): string => ["complete", "-c", PROGRAM, condition, ...rest].join(" ");
    return [
      ...(command.commands ?? []).map((each) => complete("-f", "-a", each.name, "-d", quoted(each.description))),
      ...firstWords(command).map((word) => complete("-f", "-a", word)),
      ...(takesService(command) ? [complete("-f", "-a", quoted(`(${SERVICES})`))] : []),
      ...shownFlags(command).map((flag) => complete(...fishFlag(flag))),
    ];
  });
  return `# ${PROGRAM} completion for fish: ${PROGRAM} completion fish | source\ncomplete -c ${PROGRAM} -f\n${lines.join("\n")}\n`;
}

function fishFlag(flag: Flag): string[] {
  const names = namesOf(flag).flatMap((name) =>
    name.startsWith("--") ? ["-l", name.slice(2)] : ["-s", name.slice(1)],
  );
  return [...names, ...fishValue(flag), "-d", quoted(describe(flag))];
}

function fishValue(flag: Flag): string[] {
  const value = valueOf(flag);
  if (value === undefined) return [];
  if (value === "files") return ["-r", "-F"];
  const offers = value === "services" ? `(${SERVICES})` : value.join(" ");
  return offers === "" ? ["-x"] : ["-x", "-a", quoted(offers)];
}

/** True in fish if all words of the path have been given, and none of its subcommands. */
function conditionOf({ path, commands = [] }: Placed): string {
  const seen = path === "" ? [] : path.split(" ").map((word) => `__fish_seen_subcommand_from ${word}`);
  const names = commands.map(({ name }) => name).join(" ");
  const none = names === "" ? [] : [`not __fish_seen_subcommand_from ${names}`];
  return [...seen, ...none].join("; and ") || "true";
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}

function parentOf(path: string): string {
  return path.split(" ").slice(0, -1).join(" ");
}

function lastOf(path: string): string {
  return path.split(" ").at(-1) ?? "";
}
