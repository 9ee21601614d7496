/**
 * Runs the containers of a pod as the kubelet does, in the network of the lab's node: the command, variables, files and
 * rights are those of the manifest. The image's command becomes the program under test.
 */
import type { V1Container, V1PodSpec, V1Probe, V1Volume, V1VolumeMount } from "@kubernetes/client-node";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Finished } from "../../lab/namespace.ts";
import { PLAN } from "../../lab/topology.ts";
import { type Cluster, programWords } from "./cluster.ts";
import { logOf } from "./daemon.ts";

const DOCKERFILE = join(import.meta.dirname, "../../../deploy/Dockerfile");
/** Mounted into every pod with an account. */
const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
/** Directories that may lack a mount point. They get an empty file system, so that the machine's own does not change. */
const REPLACED = ["/run", "/var/lib"];

/** As in every container that is not privileged. */
const SETTINGS_READ_ONLY = [
  "mount --bind /proc/sys /proc/sys",
  "mount -o remount,bind,ro /proc/sys",
  "mount -o remount,bind,ro /sys",
];

export interface PodWorld {
  readonly cluster: Cluster;
  readonly nodeName: string;
  /** Files by name, by ConfigMap or Secret. */
  readonly configMaps: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Files that the account of a pod has. */
  readonly account: Readonly<Record<string, string>>;
  /** Content of /etc/hosts. */
  readonly hosts: string;
}

interface Running {
  readonly child: ChildProcess;
  readonly log: () => string;
}

/** Paths of the image's commands, as the Dockerfile makes them. */
function imageCommands(): ReadonlySet<string> {
  const text = readFileSync(DOCKERFILE, "utf8");
  return new Set([...text.matchAll(/(?:-o|ln \S+) \/image(\/usr\/local\/bin\/\S+)/g)].map(([, path = ""]) => path));
}

/** Returns the command line of the program under test. Throws if the image lacks the command. */
function programOf([command = "", ...args]: readonly string[]): readonly string[] {
  const path = command.includes("/") ? command : `/usr/local/bin/${command}`;
  if (!imageCommands().has(path)) throw new Error(`the image has no ${path}`);
  return programWords(args);
}

export class Pod {
  readonly #world: PodWorld;
  readonly #spec: V1PodSpec;
  readonly #directory: string;

  private constructor(world: PodWorld, spec: V1PodSpec, directory: string) {
    this.#world = world;
    this.#spec = spec;
    this.#directory = directory;
  }

  /** Writes the files of its volumes. Throws if a volume refers to an unknown ConfigMap or Secret. */
  static async create(world: PodWorld, spec: V1PodSpec): Promise<Pod> {
    const pod = new Pod(world, spec, await world.cluster.temporaryDirectory());
    for (const volume of spec.volumes ?? []) await pod.#fill(volume);
    await pod.#write("account", world.account);
    await pod.#write("etc", { hosts: world.hosts });
    return pod;
  }

  /** Runs a container to its end. */
  async run(container: V1Container): Promise<Finished> {
    return this.#world.cluster.node.run([...this.#starter(container), ...this.#command(container)]);
  }

  /** Starts a container that keeps running. */
  start(container: V1Container): Running {
    const command = [...this.#starter(container), ...this.#command(container)];
    const child = this.#world.cluster.node.spawn(command, { stdio: ["ignore", "ignore", "pipe"] });
    return { child, log: logOf(child) };
  }

  /** Runs a command in a running container. */
  async exec({ child }: Running, container: V1Container, command: readonly string[]): Promise<Finished> {
    const enter = ["nsenter", `--target=${child.pid}`, "--mount"];
    return this.#world.cluster.node.run([...enter, ...rightsOf(container), ...programOf(command)]);
  }

  async #fill({ name, configMap, projected, emptyDir, hostPath }: V1Volume): Promise<void> {
    const parts = projected?.sources?.map((source) => source.configMap ?? source.secret);
    if (configMap !== undefined || parts !== undefined) {
      for (const part of parts ?? [configMap]) {
        const files = this.#world.configMaps[part?.name ?? ""];
        if (files === undefined) throw new Error(`there is no ConfigMap or Secret ${part?.name}`);
        await this.#write(name, files);
      }
    } else if (hostPath?.type === "FileOrCreate") await this.#write(".", { [name]: "" });
    else if (hostPath === undefined && emptyDir === undefined) throw new Error(`unknown kind of volume: ${name}`);
    else await this.#write(name, {});
  }

  async #write(name: string, files: Readonly<Record<string, string>>): Promise<void> {
    const directory = join(this.#directory, name);
    await mkdir(directory, { recursive: true });
    for (const [file, text] of Object.entries(files)) await writeFile(join(directory, file), text);
  }

  /** The command that starts its arguments in the container. */
  #starter(container: V1Container): readonly string[] {
    const { securityContext } = container;
    const mounts = [
      { name: "account", mountPath: ACCOUNT, readOnly: true },
      ...(container.volumeMounts ?? []).filter((mount) => this.#exists(mount)),
    ];
    const lines = [
      ...REPLACED.map((path) => `mkdir -p ${path} && mount -t tmpfs lab ${path}`),
      "[ -e /etc/hosts ] || touch /etc/hosts",
      `mount --bind ${join(this.#directory, "etc/hosts")} /etc/hosts`,
      ...(securityContext?.privileged === true ? [] : SETTINGS_READ_ONLY),
      ...mounts.flatMap((mount) => this.#mountLines(mount)),
      ...(securityContext?.readOnlyRootFilesystem === true
        ? ["/", ...REPLACED].map((path) => `mount -o remount,bind,ro ${path}`)
        : []),
      'exec "$@"',
    ];
    return ["unshare", "--mount", "sh", "-e", "-c", lines.join("\n"), "sh", ...rightsOf(container)];
  }

  /** The machine may have no kernel modules. */
  #exists({ name }: V1VolumeMount): boolean {
    return existsSync(this.#sourceOf(name));
  }

  #mountLines({ name, mountPath, readOnly }: V1VolumeMount): readonly string[] {
    const source = this.#sourceOf(name);
    const isFile = this.#spec.volumes?.find((volume) => volume.name === name)?.hostPath?.type === "FileOrCreate";
    return [
      isFile ? `mkdir -p ${dirname(mountPath)} && touch ${mountPath}` : `mkdir -p ${mountPath}`,
      `mount --bind ${source} ${mountPath}`,
      ...(readOnly === true ? [`mount -o remount,bind,ro ${mountPath}`] : []),
    ];
  }

  #sourceOf(name: string): string {
    const hostPath = this.#spec.volumes?.find((volume) => volume.name === name)?.hostPath;
    const isOwn = hostPath === undefined || hostPath.type === "FileOrCreate";
    return isOwn ? join(this.#directory, name) : hostPath.path;
  }

  /** Throws if a variable is unknown. */
  #command({ command = [], args = [], env = [] }: V1Container): readonly string[] {
    const values = new Map(
      env.map(({ name, value, valueFrom }) => [name, value ?? this.#fieldOf(valueFrom?.fieldRef?.fieldPath)]),
    );
    const expanded = [...command, ...args].map((word) =>
      word.replaceAll(/\$\(([^)]*)\)/g, (all, name: string) => {
        const value = values.get(name);
        if (value === undefined) throw new Error(`${all} is not set`);
        return value;
      }),
    );
    return ["env", ...Array.from(values, ([name, value]) => `${name}=${value}`), ...programOf(expanded)];
  }

  #fieldOf(path: string | undefined): string {
    if (path !== "spec.nodeName") throw new Error(`unknown field ${path}`);
    return this.#world.nodeName;
  }
}

/** The command that drops the rights which the container lacks. */
function rightsOf({ securityContext }: V1Container): readonly string[] {
  if (securityContext?.privileged === true) return [];
  const { capabilities } = securityContext ?? {};
  if (capabilities?.drop?.join() !== "ALL")
    throw new Error("only privileged containers, and those that drop all rights");
  const kept = (capabilities.add ?? []).map((name) => `+${name.toLowerCase()}`);
  return ["setpriv", `--bounding-set=${["-all", ...kept].join(",")}`, "--inh-caps=-all", "--no-new-privs"];
}

/** Returns the status of a probe's answer, or the reason why there is none. */
export async function probe({ node }: Cluster, { httpGet }: V1Probe): Promise<number | string> {
  if (httpGet === undefined) throw new Error("only HTTP probes");
  const url = `http://${PLAN.node.ip}:${String(httpGet.port)}${httpGet.path}`;
  try {
    return (await node.http().get(url)).status;
  } catch (error) {
    return String(error);
  }
}

/** Sends SIGTERM as the kubelet does. Returns the exit code. */
export async function terminate({ child }: Running): Promise<number | null> {
  const exited = once(child, "exit") as Promise<[number | null]>;
  child.kill("SIGTERM");
  const [code] = await exited;
  return code;
}
