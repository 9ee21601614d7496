/** Reads deploy/Dockerfile and .dockerignore, and writes a stage as a shell script. Unknown instructions and patterns are errors. */

export interface Instruction {
  readonly name: string;
  readonly words: string;
}

export interface Stage {
  readonly name: string;
  readonly instructions: readonly Instruction[];
}

export interface Dockerfile {
  /** Default values of the ARGs before the first stage. */
  readonly globals: Readonly<Record<string, string>>;
  readonly stages: readonly Stage[];
}

export function parseDockerfile(text: string): Dockerfile {
  const lines = text
    .replaceAll(/^\s*#.*\n/gm, "")
    .replaceAll(/\\\n\s*/g, " ")
    .split("\n")
    .filter((line) => line.trim() !== "");
  const globals: Record<string, string> = {};
  const stages: { name: string; instructions: Instruction[] }[] = [];
  for (const line of lines) {
    const [, name = "", words = ""] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
    if (name === "FROM") {
      stages.push({ name: /\sAS\s+(\S+)$/.exec(words)?.[1] ?? "", instructions: [] });
    } else if (stages.length === 0 && name === "ARG") {
      const [, key = "", value = ""] = /^(\w+)=(\S*)$/.exec(words) ?? [];
      globals[key] = value;
    } else stages.at(-1)?.instructions.push({ name, words });
  }
  return { globals, stages };
}

/** Returns a function that tells whether a file, relative to the root, is in the build context. */
export function readDockerignore(text: string): (file: string) => boolean {
  const [all, ...exceptions] = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  if (all !== "*") throw new Error(`.dockerignore: expected * first, found ${all}`);
  const allowed = exceptions.map((line) => {
    if (!/^![\w./-]+$/.test(line)) throw new Error(`.dockerignore: expected a path after !, found ${line}`);
    return line.slice(1);
  });
  return (file) => allowed.some((name) => file === name || file.startsWith(`${name}/`));
}

/** Quotes a word for the shell. */
export function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Returns the commands that copy like COPY: the contents of a directory, or a file. */
function copyCommands(words: string, context: string, stageRoot: (stage: string) => string): string[] {
  const [, from, rest = ""] = /^(?:--from=(\S+)\s+)?(.*)$/.exec(words) ?? [];
  const paths = rest.split(/\s+/);
  const target = paths.at(-1) ?? "";
  return paths.slice(0, -1).map((name) => {
    const source = quoted(from === undefined ? `${context}/${name}` : `${stageRoot(from)}${name}`);
    const file = target.endsWith("/") ? `mkdir -p ${target} && cp` : `mkdir -p "$(dirname ${target})" && cp`;
    return `if [ -d ${source} ]; then mkdir -p ${target} && cp -a ${source}/. ${target}; else ${file} ${source} ${target}; fi`;
  });
}

/** Writes a stage as a shell script that ends at the first failure. `stageRoot` gives the directory with another stage's files. */
export function stageScript(
  { globals }: Dockerfile,
  { instructions }: Stage,
  context: string,
  stageRoot: (stage: string) => string,
): string {
  const lines = instructions.flatMap(({ name, words }): string[] => {
    switch (name) {
      case "WORKDIR":
        return [`mkdir -p ${words} && cd ${words}`];
      case "ARG": {
        const [key = "", value = globals[key]] = words.replaceAll('"', "").split("=");
        return value === undefined ? [] : [`export ${key}=${quoted(value)}`];
      }
      case "COPY":
        return copyCommands(words, context, stageRoot);
      case "RUN":
        return [`/bin/sh -c ${quoted(words)}`];
      default:
        throw new Error(`Dockerfile: ${name} is not known here`);
    }
  });
  return ["set -e", ...lines].join("\n");
}
