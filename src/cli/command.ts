/** Commands as data, which their parsing, help, completion and manual page use. The help is at most 80 columns wide. */
import { UsageError } from "../base/user-error.js";
import {
  didYouMean,
  type Flag,
  flagTerm,
  type FlagsGiven,
  type OptionsOf,
  optionsOf,
  problemOf,
  readFlags,
} from "./read-flags.js";
import { writeOut } from "./stdio.js";
import { wrap } from "./text/terminal.js";

const WIDTH = 80;
/** The description of a wider term starts on the next line. */
const TERM_WIDTH = 26;

/** Exit code for an invalid command line. */
export const EXIT_USAGE = 2;

/** The purpose of a command line, and the command line. */
export type Example = readonly [purpose: string, line: string];

/** An argument. */
interface Argument {
  /** "<shell>", "[service...]" */
  readonly term: string;
  readonly usage: string;
  /** All values, if they are few. */
  readonly choices?: readonly string[];
  /** Checks the value. Throws `BadValue`. */
  readonly read?: (text: string) => unknown;
}

/** @template F the flags, which determine the type of the options. */
export interface Command<F extends readonly Flag[] = readonly Flag[]> {
  readonly name: string;
  readonly description: string;
  /** Replaces the usual line of the usage, and the list of flags. */
  readonly usage?: string;
  readonly arguments?: readonly Argument[];
  readonly flags?: F;
  /** The flags in the help. Default: all. */
  readonly shown?: readonly Flag[];
  /** Text between the options and the examples in the help: exit codes and the like. */
  readonly notes?: string;
  readonly examples: readonly Example[];
  readonly commands?: readonly Command[];
  /** Returns the exit code. Rejects with UsageError. Absent: one of `commands` has to be named. */
  run?(options: OptionsOf<F>, words: readonly string[], values: FlagsGiven["values"]): Promise<number>;
}

/** Declares a command. Its modules are loaded when it runs, because loading all of them takes half a second. */
export function command<const F extends readonly Flag[]>(declaration: Command<F>): Command {
  return declaration;
}

export const HELP: Flag = { name: "help", short: "h", type: "bool", placeholder: "", usage: "show this help" };

/** Returns the flags in the command's help. */
export function shownFlags({ usage, flags = [], shown = flags }: Command): readonly Flag[] {
  return usage === undefined ? [...shown, HELP] : shown;
}

/** Returns the command, then those below it in order, each with the words that lead to it. */
export function allCommands(command: Command, path = ""): readonly (Command & { readonly path: string })[] {
  const below = (command.commands ?? []).flatMap((each) => allCommands(each, `${path} ${each.name}`.trim()));
  return [{ ...command, path }, ...below];
}

/**
 * Runs the command that the words name. Returns the exit code. Rejects with UsageError.
 * @param path the words before, for the help.
 */
export async function runCommand(command: Command, argv: readonly string[], path: string): Promise<number> {
  const next = command.commands?.find(({ name }) => name === argv[0]);
  if (next !== undefined) return runCommand(next, argv.slice(1), `${path} ${next.name}`);
  const { flags = [] } = command;
  const { values, rest, problems } = readFlags(argv, [...flags, HELP], true);
  if (values["help"] === true) {
    await writeOut(helpText(command, path));
    return 0;
  }
  const wrong = problems.length > 0 ? problems : argumentProblems(command, rest);
  if (wrong.length > 0) throw new UsageError(wrong.join("\nerror: "));
  if (command.run !== undefined) return command.run(optionsOf(values, flags), rest, values);
  process.stderr.write(helpText(command, path));
  return EXIT_USAGE;
}

/** Says why the words are not the command's arguments. */
export function argumentProblems(
  { arguments: declared = [], commands = [] }: Command,
  words: readonly string[],
): string[] {
  const [word] = words;
  if (commands.length > 0 && word !== undefined) {
    const names = commands.map(({ name }) => name);
    return [`unknown command '${word}'${didYouMean(word, names)}`];
  }
  const missing = declared.find(({ term }, i) => term.startsWith("<") && words[i] === undefined);
  if (missing !== undefined) return [`missing required argument '${nameOf(missing)}'`];
  const more = declared.some(({ term }) => term.includes("...")) ? [] : words.slice(declared.length);
  if (more.length > 0) return [`too many arguments: ${more.join(" ")}`];
  return declared.flatMap((each, i) => {
    const problem = words[i] === undefined ? undefined : problemOf({ type: "string", ...each }, words[i]);
    return problem === undefined ? [] : [`${nameOf(each)} ${words[i]}: ${problem}`];
  });
}

/** "<packet...>" → "packet" */
export function nameOf({ term }: Argument): string {
  return term.replaceAll(/[^\w-]/g, "");
}

/** Returns a flag's or argument's text in the help: the description, the values if they are few, and the default. */
export function describe({ usage, choices, default: value, defaultText }: Partial<Flag>): string {
  const text = typeof value === "string" || typeof value === "number" ? String(value) : undefined;
  const initial = defaultText ?? text;
  const values = choices === undefined ? "" : `: ${orList(choices)}`;
  return `${usage}${values}${initial === undefined ? "" : ` (default ${initial})`}`;
}

/** Joins words: "text, json or yaml". */
function orList(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/** "[options] <packet...>" */
export function usageOf({ usage, arguments: declared = [], commands }: Command): string {
  const words = [...(commands === undefined ? [] : ["[command]"]), ...declared.map(({ term }) => term)];
  return usage ?? ["[options]", ...words].join(" ");
}

function helpText(command: Command, path: string): string {
  const { description, arguments: declared = [], commands = [], notes, examples } = command;
  const lists: Readonly<Record<string, readonly Item[]>> = {
    Arguments: declared.map((each) => [nameOf(each), describe(each)]),
    Options: command.usage === undefined ? shownFlags(command).map(flagItem) : [],
    Commands: commands.map((each) => [each.name, each.description]),
  };
  const lengths = Object.values(lists).flatMap((items) => items.map(([term]) => term.length));
  const width = Math.min(TERM_WIDTH, Math.max(...lengths));
  const sections = Object.entries(lists).filter(([, items]) => items.length > 0);
  const lines = [
    `Usage: ${path} ${usageOf(command)}`,
    ...["", ...wrap(description, 0, WIDTH)],
    ...sections.flatMap(([title, items]) => ["", `${title}:`, ...itemLines(items, width)]),
    ...(notes === undefined ? [] : ["", wrapped(notes)]),
    ...["", "Examples:", ...examples.flatMap(([purpose, line]) => [`  # ${purpose}`, `  ${line}`])],
  ];
  return `${lines.join("\n")}\n`;
}

type Item = readonly [term: string, text: string];

const flagItem = (flag: Flag): Item => [flagTerm(flag), describe(flag)];

function itemLines(items: readonly Item[], width: number): string[] {
  return items.flatMap(([term, text]) => {
    const isLong = term.length > width;
    const lines = wrap(`  ${(isLong ? "" : term).padEnd(width)}  ${text}`, width + 4, WIDTH);
    return isLong ? [`  ${term}`, ...lines] : lines;
  });
}

/** Formats flags like the options in a help. */
export function flagLines(flags: readonly Flag[]): string {
  return itemLines(flags.map(flagItem), TERM_WIDTH).join("\n");
}

/** Wraps the paragraphs of a help. */
export function wrapped(text: string): string {
  const lines = text.split("\n").flatMap((line) => wrap(line, 0, WIDTH));
  return lines.join("\n");
}
