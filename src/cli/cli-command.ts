/** Commands whose help is at most 80 columns wide and ends with examples. */
import { type Argument, Command, Help, InvalidArgumentError, Option } from "commander";
import { type Flag, flagTerm, problemOf } from "./read-flags.js";

const WIDTH = 80;
/** The description of a wider term starts on the next line. */
const TERM_WIDTH = 26;

/** The purpose of a command line, and the command line. */
export type Example = readonly [purpose: string, line: string];

export class CliCommand extends Command {
  /** Text between the options and the examples in the help: exit codes and the like. */
  notes = "";
  examples: readonly Example[] = [];

  override createCommand(name?: string): CliCommand {
    return new CliCommand(name);
  }

  override createHelp(): Help {
    return new CliHelp();
  }

  setNotes(text: string): this {
    this.notes = text;
    return this;
  }

  setExamples(...examples: readonly Example[]): this {
    this.examples = examples;
    return this;
  }
}

/** Returns an option's or argument's text in the help: the description, the values if they are few, and the default. */
export function describe({
  description,
  argChoices,
  defaultValue,
  defaultValueDescription,
}: Option | Argument): string {
  const choices = argChoices === undefined ? "" : `: ${orList(argChoices)}`;
  const value = typeof defaultValue === "string" || typeof defaultValue === "number" ? String(defaultValue) : undefined;
  const initial = defaultValueDescription ?? value;
  return `${description}${choices}${initial === undefined ? "" : ` (default ${initial})`}`;
}

/** Joins words: "text, json or yaml". */
function orList(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/** Wraps a paragraph of the help. */
export function wrapped(text: string): string {
  return new CliHelp().boxWrap(text, WIDTH);
}

/** Formats flags that commander does not know, like its list of options. */
export function flagLines(flags: readonly Flag[]): string {
  const help = new CliHelp();
  const lines = flags.map((flag) => help.formatItem(flagTerm(flag), TERM_WIDTH, describe(flagOption(flag)), help));
  return lines.join("\n");
}

/** Returns the flag as an option of a command. */
export function flagOption(flag: Flag): Option {
  const { usage, choices, read, defaultText } = flag;
  // Commander has no syntax for a value that only follows "=".
  const option = new Option(flagTerm(flag).replace("[=", " ["), usage).default(undefined, defaultText);
  if (choices !== undefined) return option.choices(choices);
  if (read === undefined) return option;
  return option.argParser((text) => {
    const problem = problemOf(() => read(text));
    if (problem !== undefined) throw new InvalidArgumentError(`It ${problem}.`);
    return read(text);
  });
}

class CliHelp extends Help {
  override prepareContext({ helpWidth = WIDTH }: { helpWidth?: number }): void {
    this.helpWidth = Math.min(WIDTH, helpWidth);
  }

  override optionDescription(option: Option): string {
    return describe(option);
  }

  override argumentDescription(argument: Argument): string {
    return describe(argument);
  }

  /** Omits a command's arguments, which are in its own help. */
  override subcommandTerm(command: Command): string {
    return command.name();
  }

  override padWidth(command: Command, helper: Help): number {
    return Math.min(TERM_WIDTH, super.padWidth(command, helper));
  }

  override formatItem(term: string, termWidth: number, description: string, helper: Help): string {
    if (term.length <= termWidth) return super.formatItem(term, termWidth, description, helper);
    return `  ${term}\n${super.formatItem("", termWidth, description, helper)}`;
  }

  override formatHelp(command: Command, helper: Help): string {
    const text = super.formatHelp(command, helper);
    if (!(command instanceof CliCommand)) return text;
    const notes = command.notes === "" ? "" : `\n${this.boxWrap(command.notes, this.helpWidth ?? WIDTH)}\n`;
    const examples = command.examples.map(([purpose, line]) => `  # ${purpose}\n  ${line}\n`);
    return `${text}${notes}\nExamples:\n${examples.join("")}`;
  }
}
