/** The command line as data, for completion and the manual page. */
import type { Command, Option } from "commander";
import { CliCommand, describe, type Example, flagOption } from "./cli-command.js";
import type { Flag } from "./read-flags.js";

export interface CommandOutline {
  /** The words after the program's name: "conntrack list", or "". */
  readonly path: string;
  readonly description: string;
  /** For example "[options] <words...>". */
  readonly usage: string;
  readonly notes: string;
  readonly examples: readonly Example[];
  readonly subcommands: readonly { readonly name: string; readonly description: string }[];
  readonly arguments: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly OptionOutline[];
  /** Values of the first argument, if they are few. */
  readonly words: readonly string[];
  /** Whether an argument can be a service. */
  readonly takesService: boolean;
}

export interface OptionOutline {
  /** For example "-o, --output <format>". */
  readonly term: string;
  /** For example "-o" and "--output". */
  readonly names: readonly string[];
  /** With the values, if they are few, and the default. */
  readonly description: string;
  readonly takesValue: boolean;
  readonly choices: readonly string[];
  /** The value is a path. */
  readonly isPath: boolean;
  /** The value is a service. */
  readonly isService: boolean;
}

/**
 * Returns the program, then its commands in order, without everything that the help hides.
 * @param flags the flags that the program accepts without a command.
 */
export function outlineOf(root: CliCommand, flags: readonly Flag[]): readonly CommandOutline[] {
  const found: CommandOutline[] = [];
  const visit = (command: Command, path: string): void => {
    const help = command.createHelp();
    const subcommands = [...help.visibleCommands(command)];
    const { notes, examples } = command instanceof CliCommand ? command : { notes: "", examples: [] };
    const options = command === root ? flags.map(flagOption) : help.visibleOptions(command);
    found.push({
      path,
      description: command.description(),
      usage: command.usage(),
      notes: command === root ? "" : notes,
      examples,
      subcommands: subcommands.map((each) => ({ name: each.name(), description: each.description() })),
      arguments: command.registeredArguments.map((each) => ({ name: each.name(), description: describe(each) })),
      options: options.map(optionOf),
      words: command.registeredArguments[0]?.argChoices ?? [],
      takesService: command.registeredArguments.some((each) => /^(?:service|packets?)$/.test(each.name())),
    });
    for (const each of subcommands) visit(each, path === "" ? each.name() : `${path} ${each.name()}`);
  };
  visit(root, "");
  return found;
}

function optionOf(option: Option): OptionOutline {
  const { flags, short, long, required, argChoices } = option;
  return {
    term: flags.replace(" [", "[="),
    names: [short, long].filter((name) => name !== undefined),
    description: describe(option),
    takesValue: required,
    choices: argChoices ?? [],
    isPath: /[<[](file|dir|path)[\]>]/.test(flags),
    isService: flags.includes("<service>"),
  };
}
