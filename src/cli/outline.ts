/** The command line's own definitions, for what is generated of them: completion and the manual page. */
import type { Command, Option } from "commander";

export interface CommandOutline {
  /** Words behind the program's name: "conntrack list"; "" for none. */
  readonly path: string;
  readonly description: string;
  /** "[options] <words...>" */
  readonly usage: string;
  readonly subcommands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly OptionOutline[];
  /** The first argument's, where it is one of a few. */
  readonly words: readonly string[];
}

export interface OptionOutline {
  /** "-o, --output <format>" */
  readonly flags: string;
  /** "-o", "--output". */
  readonly names: readonly string[];
  readonly description: string;
  /** "" where there is none. */
  readonly defaultText: string;
  readonly takesValue: boolean;
  readonly choices: readonly string[];
  /** The value is a path. */
  readonly isPath: boolean;
}

/** The program's, then those of its sub-commands, in their order. What the help hides is not among them. */
export function outlineOf(root: Command): readonly CommandOutline[] {
  const found: CommandOutline[] = [];
  const visit = (command: Command, path: string): void => {
    const help = command.createHelp();
    const subcommands = help.visibleCommands(command).filter((each) => each.name() !== "help");
    found.push({
      path,
      description: command.description(),
      usage: command.usage(),
      subcommands: subcommands.map((each) => ({ name: each.name(), description: each.description() })),
      options: help.visibleOptions(command).map(optionOf),
      words: command.registeredArguments[0]?.argChoices ?? [],
    });
    for (const each of subcommands) visit(each, path === "" ? each.name() : `${path} ${each.name()}`);
  };
  visit(root, "");
  return found;
}

function optionOf(option: Option): OptionOutline {
  const { flags, short, long, description, required, optional, argChoices, defaultValue } = option;
  const shown = typeof defaultValue === "string" || typeof defaultValue === "number" ? String(defaultValue) : "";
  return {
    flags,
    names: [short, long].filter((name) => name !== undefined),
    description,
    defaultText: shown,
    takesValue: required || optional,
    choices: argChoices ?? [],
    isPath: /[<[](file|dir|path)[\]>]/.test(flags),
  };
}
