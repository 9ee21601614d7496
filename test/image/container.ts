/**
 * Runs a pod's containers with runc, as the kubelet and containerd run them: the command, environment, security context, memory limit and
 * mounts of the manifest. The pod uses the host's network, which is a namespace of the lab.
 */
import type { V1Container, V1PodSpec, V1SecurityContext } from "@kubernetes/client-node";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mustRun } from "../lab/debian.ts";
import { type Finished, type Namespace, run } from "../lab/namespace.ts";
import type { ImageConfig } from "../../deploy/release/image.ts";
import { directory } from "./build.ts";

/** The part of the OCI runtime's configuration that we change. */
interface Spec {
  hostname?: string;
  process: Record<string, unknown> & { env: string[] };
  root: { path: string; readonly: boolean };
  mounts: { destination: string; type?: string; source?: string; options?: string[] }[];
  linux: Record<string, unknown> & {
    namespaces: { type: string; path?: string }[];
    resources: Record<string, unknown>;
    maskedPaths?: string[];
    readonlyPaths?: string[];
  };
}

/** Docker's format of a seccomp profile, which containerd's default profile shares. */
interface Profile {
  readonly defaultAction: string;
  readonly defaultErrnoRet: number;
  readonly syscalls: readonly (Readonly<Record<string, unknown>> & {
    readonly includes?: Conditions;
    readonly excludes?: Conditions;
  })[];
}
interface Conditions {
  readonly arches?: readonly string[];
  readonly caps?: readonly string[];
}

/** containerd's, before `drop` and `add`. */
const DEFAULT_CAPABILITIES = [
  ..."CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE".split(" "),
  ..."SYS_CHROOT KILL AUDIT_WRITE".split(" "),
];
const DEBIAN_ARCH = process.arch === "arm64" ? "arm64" : "amd64";

function capabilitiesOf({ capabilities, privileged }: V1SecurityContext): readonly string[] {
  if (privileged === true) {
    // All that this machine has: it may be a container itself.
    const bounding = BigInt(`0x${/^CapBnd:\s+(\w+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]}`);
    const names = mustRun("setpriv", ["--list-caps"]).trim().split("\n");
    return names.flatMap((name, bit) => ((bounding >> BigInt(bit)) & 1n ? [`CAP_${name.toUpperCase()}`] : []));
  }
  const dropped = new Set(capabilities?.drop);
  const kept = dropped.has("ALL") ? [] : DEFAULT_CAPABILITIES.filter((name) => !dropped.has(name));
  return [...new Set([...kept, ...(capabilities?.add ?? [])])].map((name) => `CAP_${name}`);
}

/** Resolves the profile's conditions for this architecture and these capabilities. */
function seccompFor(capabilities: readonly string[]): Record<string, unknown> {
  const profile = JSON.parse(readFileSync("/usr/share/containers/seccomp.json", "utf8")) as Profile;
  const isMet = ({ arches, caps }: Conditions = {}): boolean =>
    (arches?.includes(DEBIAN_ARCH) ?? true) && (caps?.every((name) => capabilities.includes(name)) ?? true);
  const isExcluded = ({ arches = [], caps = [] }: Conditions = {}): boolean =>
    arches.includes(DEBIAN_ARCH) || caps.some((name) => capabilities.includes(name));
  const syscalls = profile.syscalls
    .filter(({ includes, excludes }) => isMet(includes) && !isExcluded(excludes))
    .map(({ names, action, args, errnoRet }) => ({ names, action, args: args ?? [], errnoRet }));
  return { defaultAction: profile.defaultAction, defaultErrnoRet: profile.defaultErrnoRet, syscalls };
}

const UNITS: Readonly<Record<string, number>> = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30 };

function bytesOf(quantity: string): number {
  const [, number, unit = ""] = /^(\d+)(Ki|Mi|Gi)?$/.exec(quantity) ?? [];
  if (number === undefined) throw new Error(`not a quantity that this understands: ${quantity}`);
  return Number(number) * (UNITS[unit] ?? 1);
}

/** The node of a pod, as the kubelet knows it. */
export interface Node {
  readonly name: string;
  readonly namespace: Namespace;
  /** Directories and files of the pod's volumes by name; an emptyDir needs none. */
  readonly volumes: Readonly<Record<string, string>>;
  /** Directory with the service account's token and certificate. */
  readonly account: string;
}

/** The image, a pod that uses it, and its node. */
export interface Pod {
  readonly root: string;
  readonly config: ImageConfig;
  readonly spec: V1PodSpec;
  readonly node: Node;
}

const RUNC = ["--root", path.join(directory, "runc")];
let containers = 0;

/** One container of a pod. */
export class Container {
  readonly #id = `nft-proxier-test-${process.pid}-${++containers}`;
  readonly child: ChildProcess;
  log = "";
  output = "";

  /** Starts it. `overlay` replaces files of the image: paths in the image and on this machine. */
  constructor(pod: Pod, container: V1Container, overlay: Readonly<Record<string, string>> = {}) {
    const bundle = path.join(directory, "bundles", this.#id);
    mkdirSync(bundle, { recursive: true });
    mustRun("runc", ["spec"], { cwd: bundle });
    const file = path.join(bundle, "config.json");
    const spec = JSON.parse(readFileSync(file, "utf8")) as Spec;
    fill(spec, pod, container, overlay);
    writeFileSync(file, JSON.stringify(spec));
    const words = [...RUNC, "run", "--bundle", bundle, this.#id];
    this.child = spawn("runc", words, { stdio: ["ignore", "pipe", "pipe"] });
    this.child.stdout?.on("data", (chunk: Buffer) => (this.output += chunk.toString()));
    this.child.stderr?.on("data", (chunk: Buffer) => (this.log += chunk.toString()));
  }

  /** Resolves with the exit code, -1 if the container was killed. */
  ended(): Promise<number> {
    const { child } = this;
    if (child.exitCode !== null) return Promise.resolve(child.exitCode);
    return new Promise((resolve) => child.once("close", (code) => resolve(code ?? -1)));
  }

  /** The container's first process, as this machine numbers it. */
  get pid(): number {
    return (JSON.parse(mustRun("runc", [...RUNC, "state", this.#id])) as { pid: number }).pid;
  }

  /** Like `kubectl exec`. */
  exec(...command: readonly string[]): Promise<Finished> {
    return run("runc", [...RUNC, "exec", this.#id, ...command]);
  }

  /** Sends the container's first process a signal. */
  kill(signal: "TERM" | "KILL"): void {
    mustRun("runc", [...RUNC, "kill", this.#id, signal]);
  }

  /** Ends it, if it still runs, and removes what runc keeps. */
  async remove(): Promise<void> {
    await run("runc", [...RUNC, "delete", "--force", this.#id]);
    await this.ended();
  }
}

function fill(spec: Spec, pod: Pod, container: V1Container, overlay: Readonly<Record<string, string>>): void {
  const { root, config, spec: podSpec, node } = pod;
  const security = { ...podSpec.securityContext, ...container.securityContext } as V1SecurityContext;
  const privileged = security.privileged === true;
  const capabilities = capabilitiesOf(security);
  const variables = (container.env ?? []).map(({ name, value, valueFrom }) => {
    if (value !== undefined) return [name, value] as const;
    if (valueFrom?.fieldRef?.fieldPath !== "spec.nodeName")
      throw new Error(`${name}: a source that this does not know`);
    return [name, node.name] as const;
  });
  const expanded = (word: string): string =>
    variables.reduce((text, [name, value]) => text.replaceAll(`$(${name})`, value), word);
  spec.process = {
    terminal: false,
    user: { uid: security.runAsUser ?? Number(config.User), gid: 0 },
    args: [...(container.command ?? config.Entrypoint), ...(container.args ?? [])].map(expanded),
    env: [...config.Env, ...variables.map(([name, value]) => `${name}=${value}`)],
    cwd: "/",
    capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
    noNewPrivileges: security.allowPrivilegeEscalation === false,
  };
  spec.root = { path: root, readonly: security.readOnlyRootFilesystem === true };
  if (podSpec.hostNetwork !== true) throw new Error("the pod does not use the host's network");
  // The pod also has the host's name.
  delete spec.hostname;
  const { namespaces } = spec.linux;
  spec.linux.namespaces = namespaces.filter(({ type }) => type !== "network" && type !== "uts");
  spec.linux.namespaces.push({ type: "network", path: `/run/netns/${node.namespace.name}` });
  spec.linux.resources = { memory: { limit: bytesOf(container.resources?.limits?.["memory"] ?? "1Gi") } };
  if (privileged) {
    spec.linux.maskedPaths = [];
    spec.linux.readonlyPaths = [];
    for (const mount of spec.mounts) mount.options = mount.options?.filter((option) => option !== "ro");
  } else if (security.seccompProfile?.type === "RuntimeDefault") spec.linux["seccomp"] = seccompFor(capabilities);
  const account = { name: "account", mountPath: "/var/run/secrets/kubernetes.io/serviceaccount", readOnly: true };
  for (const { name, mountPath, readOnly } of [...(container.volumeMounts ?? []), account]) {
    const memory = podSpec.volumes?.find((volume) => volume.name === name)?.emptyDir;
    const options = ["nosuid", "nodev", readOnly === true ? "ro" : "rw"];
    const source = name === "account" ? node.account : node.volumes[name];
    if (memory !== undefined) {
      const size = `size=${bytesOf(String(memory.sizeLimit))}`;
      spec.mounts.push({ destination: mountPath, type: "tmpfs", source: "tmpfs", options: [...options, size] });
    } else if (source === undefined) throw new Error(`the node has no volume ${name}`);
    else spec.mounts.push({ destination: mountPath, type: "bind", source, options: ["rbind", ...options] });
  }
  for (const [destination, source] of Object.entries(overlay))
    spec.mounts.push({ destination, type: "bind", source, options: ["bind", "ro"] });
}
