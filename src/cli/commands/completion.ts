/**
 * Scripts that complete the command line in a shell. They contain all words, so no program runs at each key. Only the names of services come
 * from the daemon.
 */
import { type CommandOutline, type OptionOutline } from "../outline.js";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

const PROGRAM = "nft-proxier";
/** Prints the names of the daemon's services. */
const SERVICES = `${PROGRAM} services -o name 2>/dev/null | sed -n s,^service/,,p`;

export function completionScript(shell: Shell, outline: readonly CommandOutline[]): string {
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

function bash(outline: readonly CommandOutline[]): string {
  const paths = outline.flatMap(({ path }) =>
    path === "" ? [] : [`      "${parentOf(path)}:${lastOf(path)}") path="${path}" ;;`],
  );
  const words = outline.map(({ path, subcommands, options, words: first, takesService }) => {
    const services = takesService ? [`$(_nft_proxier_services)`] : [];
    const all = [
      ...services,
      ...subcommands.map(({ name }) => name),
      ...first,
      ...options.flatMap(({ names }) => names),
    ];
    return `    "${path}") words="${all.join(" ")}" ;;`;
  });
  const values = outline.flatMap(({ path, options }) =>
    options.flatMap(({ names, takesValue, choices, isPath, isService }) => {
      if (!takesValue) return [];
      const patterns = names.map((name) => `"${path}:${name}"`).join("|");
      if (isPath)
        return [`    ${patterns}) compopt -o default 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;`];
      const offers = isService ? "$(_nft_proxier_services)" : choices.join(" ");
      return [`    ${patterns}) COMPREPLY=($(compgen -W "${offers}" -- "$current")); return ;;`];
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

function fish(outline: readonly CommandOutline[]): string {
  const lines = outline.flatMap(({ path, subcommands, options, words, takesService }) => {
    const condition = `-n '${conditionOf(path, outline)}'`;
    const complete = (...rest: readonly string[]): string => ["complete", "-c", PROGRAM, condition, ...rest].join(" ");
    return [
      ...subcommands.map(({ name, description }) => complete("-f", "-a", name, "-d", quoted(description))),
      ...words.map((word) => complete("-f", "-a", word)),
      ...(takesService ? [complete("-f", "-a", quoted(`(${SERVICES})`))] : []),
      ...options.map((option) => complete(...fishOption(option))),
    ];
  });
  return `# ${PROGRAM} completion for fish: ${PROGRAM} completion fish | source\ncomplete -c ${PROGRAM} -f\n${lines.join("\n")}\n`;
}

function fishOption({ names, description, takesValue, choices, isPath, isService }: OptionOutline): string[] {
  const flags = names.flatMap((name) => (name.startsWith("--") ? ["-l", name.slice(2)] : ["-s", name.slice(1)]));
  const value = takesValue
    ? isPath
      ? ["-r", "-F"]
      : [
          "-x",
          ...(choices.length > 0 || isService ? ["-a", quoted(isService ? `(${SERVICES})` : choices.join(" "))] : []),
        ]
    : [];
  return [...flags, ...value, "-d", quoted(description)];
}

/** True in fish if all words of the path have been given, and none of its subcommands. */
function conditionOf(path: string, outline: readonly CommandOutline[]): string {
  const below = outline.find((each) => each.path === path)?.subcommands.map(({ name }) => name) ?? [];
  const seen = path === "" ? [] : path.split(" ").map((word) => `__fish_seen_subcommand_from ${word}`);
  const none = below.length === 0 ? [] : [`not __fish_seen_subcommand_from ${below.join(" ")}`];
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
