/**
 * The names by which every command accepts services: NAMESPACE/NAME, NAME, an address, each with or without a port. A port is a number or a
 * port's name. A number alone is a node port.
 */
import { closest } from "../../base/closest.js";
import { familyOf, parseAddress, withPort } from "../../base/ip.js";
import { vipsOf } from "../../model/service-address.js";
import type { ServiceList, ServicePortStatus } from "../../observe/status-report.js";
import { UserError } from "../stdio.js";
import type { DaemonAnswers } from "./daemon-answers.js";

/** The meaning of one word. */
export type Selector =
  /** A service. Without a namespace, it is searched in all namespaces. */
  | { readonly namespace?: string; readonly name: string; readonly port?: string }
  /** A VIP or an endpoint's address, or with a port also an address of a node port. */
  | { readonly address: string; readonly port?: string }
  | { readonly nodePort: number };

/** Has a letter, because mistyped addresses are not names. */
const DNS_NAME = /^(?=.*[a-z])[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/;

/** Removes the prefix that `services -o name` prints before NAMESPACE/NAME. A namespace may have the same name. */
export const withoutKind = (text: string): string => text.replace(/^service\/(?=[^/]+\/)/, "");

const isPort = (port: number): boolean => Number.isInteger(port) && port >= 1 && port <= 65_535;

/** @param namespace of names without one. Returns undefined if the text is neither a name, nor an address, nor a port. */
export function parseSelector(text: string, namespace?: string): Selector | undefined {
  if (/^\d+$/.test(text) && isPort(Number(text))) return { nodePort: Number(text) };
  const whole = parseAddress(text);
  if (whole !== undefined) return { address: whole };
  const [, bracketed, plain, port] = /^(?:\[(.+)\]|([^[\]:]+))(?::([a-z0-9-]+))?$/.exec(withoutKind(text)) ?? [];
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
      const forms = "NAMESPACE/NAME, NAME or ADDRESS, each also with :PORT, or a node port";
      throw new UserError(`${word} is not a service; use ${forms}`);
    }
    const found = "name" in selector ? await byName(answers, selector, word) : await byAddress(answers, selector);
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

async function byAddress(answers: DaemonAnswers, selector: Exclude<Selector, { name: string }>): Promise<ServiceList> {
  if ("nodePort" in selector) {
    const list = await matching(answers, ({ nodePort }) => nodePort === selector.nodePort);
    return list ?? fail(`no service has node port ${selector.nodePort}`);
  }
  const { address, port } = selector;
  const number = port === undefined ? undefined : Number(port);
  if (number !== undefined && !isPort(number)) {
    fail(`${withPort(address, 0).replace(/0$/, port!)}: the port of an address is a number`);
  }
  const ofVIP = await matching(
    answers,
    (item) => vipsOf(item).includes(address) && item.port === (number ?? item.port),
  );
  const isNodePort = (item: ServicePortStatus): boolean =>
    item.nodePort === number && item.family === familyOf(address);
  const list = ofVIP ?? (number === undefined ? undefined : await matching(answers, isNodePort));
  const isEndpoint = ({ endpoints = [] }: ServicePortStatus): boolean =>
    endpoints.some((endpoint) => endpoint.address === address && endpoint.port === (number ?? endpoint.port));
  // Endpoints are read last, because there may be many more of them than services.
  const found = list ?? (await matching(answers, isEndpoint, "endpoints"));
  if (found !== undefined) return found;
  if (number === undefined) return fail(`no service and no endpoint has the address ${address}`);
  return fail(`no service and no endpoint has ${withPort(address, number)}, and no service has node port ${number}`);
}

function fail(message: string): never {
  throw new UserError(message);
}

/** Returns the ports that match of all services. Resolves to undefined if there are none. */
async function matching(
  answers: DaemonAnswers,
  matches: (item: ServicePortStatus) => boolean,
  what?: "endpoints",
): Promise<ServiceList | undefined> {
  const found = new Set<string>();
  await answers.eachService((items) => {
    for (const item of items) if (matches(item)) found.add(`${item.namespace}/${item.name}`);
  }, what);
  const lists = await Promise.all(Array.from(found, (full) => answers.service(full.split("/")[0], full.split("/")[1])));
  const [first] = lists.filter((list) => list !== undefined);
  return first && { ...first, items: lists.flatMap((list) => list?.items ?? []).filter(matches) };
}
