/** The flags of a command line without a command, and their help. */
import { flagLines, HELP, wrapped } from "../command.js";
import { type FlagName, IGNORED, KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";
import { OWN_FLAGS } from "./own-flags.js";
import type { Flag } from "../read-flags.js";

export const ALL_FLAGS: readonly Flag[] = [...KUBE_PROXY_FLAGS, ...OWN_FLAGS, HELP];

const isIgnored = ({ usage }: Flag): boolean => usage.startsWith(IGNORED);

/** Flags that have an effect. */
export const EFFECTIVE_FLAGS = ALL_FLAGS.filter((flag) => !isIgnored(flag));

/** kube-proxy's flags without an effect, in one line. */
export const IGNORED_FLAGS = ALL_FLAGS.filter(isIgnored)
  .map(({ name }) => `--${name}`)
  .join(", ");

const COMMON: readonly (FlagName | (typeof OWN_FLAGS)[number]["name"])[] = [
  "config",
  "kubeconfig",
  "hostname-override",
  "cluster-cidr",
  "nodeport-addresses",
  "manifests",
  "write-config-to",
  "cleanup",
  "v",
  "version",
];

/** The most common flags. */
export const COMMON_FLAGS = COMMON.flatMap((name) => ALL_FLAGS.filter((flag) => flag.name === name));

export function allFlagsHelp(): string {
  return `Flags of the daemon, which runs if no command is given. Flags of kube-proxy 1.36
have the same meaning.

${flagLines(EFFECTIVE_FLAGS)}

${wrapped(`Accepted and ignored: ${IGNORED_FLAGS}`)}
`;
}
