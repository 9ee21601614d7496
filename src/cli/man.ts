/** The manual page nft-proxier(8), in roff (groff_man(7)), from the definitions that the help is made of. */
import type { CommandOutline, OptionOutline } from "./outline.js";

export function manPage(outline: readonly CommandOutline[], version: string): string {
  const [root, ...commands] = outline;
  const sections = [
    `.TH NFT\\-PROXIER 8 "" "nft\\-proxier ${text(version)}" "System Administration"`,
    ".SH NAME",
    `nft\\-proxier \\- Kubernetes Services on nf_tables`,
    ".SH SYNOPSIS",
    ".B nft\\-proxier",
    text(root?.usage ?? ""),
    ".SH DESCRIPTION",
    text(root?.description ?? ""),
    "Without a command it serves a cluster, with kube\\-proxy's flags.",
    ".SH COMMANDS",
    ...commands.flatMap((command) => [
      `.SS nft\\-proxier ${text(command.path)} ${text(command.usage)}`,
      text(command.description),
      ...command.options.flatMap(optionText),
    ]),
    ".SH OPTIONS",
    "Without a command:",
    ...(root?.options ?? []).flatMap(optionText),
    ".SH EXIT STATUS",
    "0: done; of",
    ".B status",
    "no problems. 1: failed; of",
    ".B status",
    "problems. 2: wrong command line; of",
    ".B preflight",
    "the node could not be looked at.",
    ".SH FILES",
    ".TP",
    ".I /run/nft\\-proxier/INODE.sock",
    "The daemon's socket, named by the network namespace that it serves; for root alone.",
    ".SH SEE ALSO",
    ".BR nft (8),",
    ".BR conntrack (8)",
  ];
  return `${sections.filter((line) => line !== "").join("\n")}\n`;
}

function optionText({ flags, description, defaultText, choices }: OptionOutline): string[] {
  const more = [
    ...(choices.length > 0 ? [`One of: ${choices.join(", ")}.`] : []),
    ...(defaultText === "" ? [] : [`Default: ${defaultText}.`]),
  ];
  return [".TP", `.B ${text(flags)}`, text(description), ...more.map(text)];
}

/** A character that is not ASCII, by its number: 4 digits at least (groff_char(7)). */
function characterOf(one: string): string {
  return `\\[u${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Of one line; a leading dot or quote would be a request. */
function text(plain: string): string {
  const escaped = plain
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/\s*\n\s*/g, " ")
    .replaceAll(/[^ -~]/gu, characterOf);
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}
