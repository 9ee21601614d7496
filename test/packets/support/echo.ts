/** A service whose endpoints echo what a client says, and conversations with it on several ways. */
import type { Namespace } from "../../lab/namespace.ts";
import { FAMILIES, type Lab } from "../../lab/topology.ts";
import type { Cluster } from "./cluster.ts";
import { Conversation, startEchoServer } from "./conversation.ts";
import { type Manifest, serviceObjects, type ServiceSpec, type Target } from "./objects.ts";

export const ECHO_PORT = 9999;

export async function startEchoServers({ lab }: Cluster, ...pods: readonly string[]): Promise<void> {
  for (const pod of pods) {
    const { namespace, address } = lab.pod(pod);
    for (const family of FAMILIES) await startEchoServer(namespace, address[family], ECHO_PORT);
  }
}

/** The service, with its endpoints on the echo servers' port. */
export function echoObjects(lab: Lab, service: ServiceSpec): Manifest[] {
  return serviceObjects(lab, service).map((object) =>
    object["kind"] === "Service"
      ? object
      : { ...object, ports: (object["ports"] as Manifest[]).map((port) => ({ ...port, port: ECHO_PORT })) },
  );
}

export interface NamedConversation {
  readonly name: string;
  readonly conversation: Conversation;
}

const open: Conversation[] = [];

/** Like `Conversation.open`, but `closeConversations` closes it. */
export async function openConversation(from: Namespace, host: string, port: number): Promise<Conversation> {
  const conversation = await Conversation.open(from, host, port);
  open.push(conversation);
  return conversation;
}

/** Opens a conversation from each source, on each way, in both families. */
export async function converse(
  cluster: Cluster,
  sources: readonly string[],
  ways: readonly Target[],
): Promise<readonly NamedConversation[]> {
  const made = sources.flatMap((from) =>
    ways.flatMap((to) =>
      FAMILIES.map(async (family) => {
        const { namespace } = cluster.source(from);
        const conversation = await openConversation(namespace, to.address[family], to.port);
        return { name: `${family} ${from} → ${to.name}`, conversation };
      }),
    ),
  );
  return Promise.all(made);
}

/** Closes all open conversations. */
export function closeConversations(): void {
  for (const conversation of open.splice(0)) conversation.close();
}

/** The answer of each conversation to a word: the word itself, an error's code, or "" for silence. */
export function say(all: readonly NamedConversation[], word: string, timeoutMs?: number): Promise<string[]> {
  return Promise.all(all.map(async ({ name, conversation }) => `${name}: ${await conversation.say(word, timeoutMs)}`));
}

/** The result of `say` if all conversations answer the same. */
export function allAnswer(all: readonly NamedConversation[], answer: string): string[] {
  return all.map(({ name }) => `${name}: ${answer}`);
}
