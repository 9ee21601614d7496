/** The manual page nft-proxier(8), in roff (groff_man(7)), from the declarations of the help. */
import { allCommands, type Command, describe, type Example, nameOf, shownFlags, usageOf } from "../command.js";
import { IGNORED_FLAGS } from "../flags/flags-help.js";
import { type Flag, flagTerm } from "../read-flags.js";

export function manPage(program: Command, version: string): string {
  const [root, ...commands] = allCommands(program);
  const sections = [
    `.TH NFT\\-PROXIER 8 "" "nft\\-proxier ${text(version)}" "System Administration"`,
    ".SH NAME",
    `nft\\-proxier \\- Kubernetes Services on nf_tables`,
    ".SH SYNOPSIS",
    ".B nft\\-proxier",
    text(usageOf(root)),
    ".SH DESCRIPTION",
    text(root.description),
    "Without a command it serves a cluster, and takes kube\\-proxy's flags.",
    ".SH COMMANDS",
    ...commands.flatMap((command) => [
      `.SS nft\\-proxier ${text(command.path)} ${text(usageOf(command))}`,
      text(command.description),
      ...(command.arguments ?? []).flatMap((each) => item(nameOf(each), describe(each))),
      ...shownFlags(command).flatMap(flagText),
      ...(command.notes?.split("\n\n") ?? []).flatMap((note) => [".PP", text(note)]),
      ...command.examples.flatMap(exampleText),
    ]),
    ".SH FLAGS",
    "Without a command:",
    ...shownFlags(root).flatMap(flagText),
    ".PP",
    `Accepted and ignored: ${text(IGNORED_FLAGS)}`,
    ".SH EXAMPLES",
    ...root.examples.flatMap(exampleText),
    ".SH EXIT STATUS",
    "0: done. 1: failed; or",
    ".B status",
    "found problems. 2: invalid command line; or",
    ".B preflight",
    "could not inspect the node.",
    ".SH FILES",
    ".TP",
    ".I /run/nft\\-proxier/INODE.sock",
    "The daemon's socket, for root only. INODE is the number of the daemon's network namespace.",
    ".SH SEE ALSO",
    ".BR nft (8),",
    ".BR conntrack (8)",
  ];
  return `${sections.filter((line) => line !== "").join("\n")}\n`;
}

function item(term: string, description: string): string[] {
  return [".TP", `.B ${text(term)}`, text(description)];
}

function flagText(flag: Flag): string[] {
  return item(flagTerm(flag), describe(flag));
}

function exampleText([purpose, line]: Example): string[] {
  return [".PP", `${text(purpose)}:`, ".PP", ".RS 4", `.B ${text(line)}`, ".RE"];
}

/** Returns the escape of a character that is not ASCII: its number, with at least 4 digits (groff_char(7)). */
function characterOf(one: string): string {
  return `\\[u${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Escapes text to one line. A leading dot or quote would be a request. */
function text(plain: string): string {
  const escaped = plain
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/\s*\n\s*/g, " ")
    .replaceAll(/[^ -~]/gu, characterOf);
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}
