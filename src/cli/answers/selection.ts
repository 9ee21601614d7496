/**
 * The names by which every command accepts services: NAMESPACE/NAME, NAME, an address, each with or without a port. A port is a number or a
 * port's name.
 */
import { closest } from "../../base/closest.js";
import { familyOf, parseAddress, withPort } from "../../base/ip.js";
import { vipsOf } from "../../model/service-address.js";
import type { ServiceList, ServicePortStatus } from "../../observe/status-report.js";
import { TRANSPORTS } from "../../tools/explain/packet-spec.js";
import { UserError } from "../stdio.js";
import type { DaemonAnswers } from "./daemon-answers.js";

/** The meaning of one word. */
export type Selector =
  /** A service. Without a namespace, it is searched in all namespaces. */
  | { readonly namespace?: string; readonly name: string; readonly port?: string }
  /** A VIP, or with a port also an address of a node port. */
  | { readonly address: string; readonly port?: string };

/** Has a letter, because mistyped addresses are not names. */
const DNS_NAME = /^(?=.*[a-z])[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/;

/** @param namespace of names without one. Returns undefined if the text is neither a name nor an address. */
export function parseSelector(text: string, namespace?: string): Selector | undefined {
  const whole = parseAddress(text);
  if (whole !== undefined) return { address: whole };
  const [, bracketed, plain, port] = /^(?:\[(.+)\]|([^[\]:]+))(?::([a-z0-9-]+))?$/.exec(text) ?? [];
  const address = parseAddress(bracketed ?? plain ?? "");
  if (address !== undefined) return { address, port };
  const words = plain?.split("/") ?? [];
  if (words.length < 1 || words.length > 2 || !words.every((word) => DNS_NAME.test(word))) return undefined;
  return words.length === 1 ? { namespace, name: words[0], port } : { namespace: words[0], name: words[1], port };
}

/**
 * Returns the ports that the words select, with their endpoints and without duplicates, in the order of the words.
 * @param namespace of names without one. Default: all namespaces.
 * @throws {UserError} if a word is invalid, selects nothing, or is the name of several services.
 */
export async function select(
  answers: DaemonAnswers,
  words: readonly string[],
  namespace?: string,
): Promise<ServiceList> {
  let list: ServiceList | undefined;
  const items = new Map<string, ServicePortStatus>();
  for (const word of words) {
    const selector = parseSelector(word, namespace);
    if (selector === undefined) {
      throw new UserError(`${word} is not a service; use NAMESPACE/NAME, NAME or ADDRESS, each also with :PORT`);
    }
    const found = "address" in selector ? await byAddress(answers, selector) : await byName(answers, selector, word);
    list = found;
    for (const item of found.items)
      items.set(JSON.stringify([item.namespace, item.name, item.family, item.protocol, item.port]), item);
  }
  if (list === undefined) throw new RangeError("no words");
  return { ...list, items: [...items.values()] };
}

async function byName(
  answers: DaemonAnswers,
  { namespace, name, port }: Extract<Selector, { name: string }>,
  word: string,
): Promise<ServiceList> {
  const full = namespace === undefined ? await inAnyNamespace(answers, name) : `${namespace}/${name}`;
  const [ofNamespace, ofName] = full.split("/");
  const list = await answers.service(ofNamespace, ofName);
  if (list === undefined) throw new UserError(`${full} is not served: ${await whyNot(answers, full)}`);
  const items = list.items.filter((item) => port === undefined || port === String(item.port) || port === item.portName);
  if (items.length > 0) return { ...list, items };
  const ports = new Set(list.items.map((item) => `${item.port}/${item.protocol} ${item.portName}`.trim()));
  throw new UserError(`${word}: ${full} has no such port; its ports are ${[...ports].join(", ")}`);
}

/** Returns the only "NAMESPACE/NAME" with this name. */
async function inAnyNamespace(answers: DaemonAnswers, name: string): Promise<string> {
  const found = new Set<string>();
  const names = new Set<string>();
  await answers.eachService((items) => {
    for (const item of items) {
      names.add(item.name);
      if (item.name === name) found.add(`${item.namespace}/${name}`);
    }
  });
  const [only, ...others] = found;
  if (only === undefined) throw new UserError(`no served service has the name ${name}${guess(name, names)}`);
  if (others.length === 0) return only;
  throw new UserError(`${name} is in ${found.size} namespaces: ${[...found].join(", ")}; name one of them, or use -n`);
}

async function whyNot(answers: DaemonAnswers, full: string): Promise<string> {
  const [ofNamespace, ofName] = full.split("/");
  const reason = await answers.whyNotServed(ofNamespace, ofName);
  if (reason !== undefined) return reason;
  const names = new Set<string>();
  await answers.eachService((items) => {
    for (const { namespace, name } of items) names.add(`${namespace}/${name}`);
  });
  return `it does not exist${guess(full, names)}`;
}

function guess(name: string, names: Iterable<string>): string {
  const nearest = closest(name, names);
  return nearest === undefined ? "; run `nft-proxier services` for a list" : `; did you mean ${nearest}?`;
}

async function byAddress(
  answers: DaemonAnswers,
  { address, port }: Extract<Selector, { address: string }>,
): Promise<ServiceList> {
  const number = Number(port);
  if (port === undefined) return withVIP(answers, address);
  if (!Number.isInteger(number) || number < 1 || number > 65_535) {
    throw new UserError(`${withPort(address, 0).replace(/0$/, port)}: the port of an address is a number`);
  }
  const to = { family: familyOf(address), destination: address, destinationPort: number };
  const lists = await Promise.all(TRANSPORTS.map((protocol) => answers.ownerOf({ ...to, protocol })));
  const items = lists.flatMap((list, i) =>
    (list?.items ?? []).filter(
      (item) =>
        item.family === to.family &&
        item.protocol.toLowerCase() === TRANSPORTS[i] &&
        ((item.port === number && vipsOf(item).includes(address)) || item.nodePort === number),
    ),
  );
  const [list] = lists.filter((each) => each !== undefined);
  if (list !== undefined && items.length > 0) return { ...list, items };
  throw new UserError(`no service has ${withPort(address, number)}, and none has node port ${number}`);
}

/** Returns all ports of the services that have the VIP. */
async function withVIP(answers: DaemonAnswers, address: string): Promise<ServiceList> {
  const found = new Set<string>();
  await answers.eachService((items) => {
    for (const item of items) if (vipsOf(item).includes(address)) found.add(`${item.namespace}/${item.name}`);
  });
  if (found.size === 0) throw new UserError(`no service has the address ${address}`);
  const lists = await Promise.all(Array.from(found, (full) => answers.service(full.split("/")[0], full.split("/")[1])));
  const [first] = lists.filter((list) => list !== undefined);
  if (first === undefined) throw new UserError(`no service has the address ${address}`);
  const items = lists.flatMap((list) => list?.items ?? []).filter((item) => vipsOf(item).includes(address));
  return { ...first, items };
}
