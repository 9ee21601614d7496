/**
 * Whose an endpoint is: its pod and its node. Nothing that is served depends on it, operators alone are told; so it is kept in as little memory as will do,
 * and made into objects for those that a request is about.
 */
import type { IpFamily } from "../base/ip.js";
import { type Hints, NO_HINTS } from "./categorize.js";
import type { SliceRecord } from "./records.js";
import { preferred } from "./slices.js";
import type { Endpoint, Protocol } from "./types.js";

/** As many as two characters tell apart that take a byte each: a text of such characters takes a byte for each. */
const MOST_NODES = 1 << 16;
const CODE_LENGTH = 2;
const NO_CODE = "\0\0";

/** Names of nodes by a code of two characters: many endpoints are on each. */
class NodeTable {
  readonly #names: string[] = [""];
  readonly #codes: string[] = [NO_CODE];
  readonly #numbers = new Map<string, number>([["", 0]]);

  hasRoom(count: number): boolean {
    return this.#names.length + count <= MOST_NODES;
  }

  codeOf(name: string): string {
    const known = this.#numbers.get(name);
    if (known !== undefined) return this.#codes[known];
    const number = this.#names.push(name) - 1;
    this.#numbers.set(name, number);
    const code = String.fromCharCode(number & 255, number >> 8);
    this.#codes.push(code);
    return code;
  }

  /** Of the code at `index` of the text. */
  at(text: string, index: number): string {
    return this.#names[text.charCodeAt(index) + text.charCodeAt(index + 1) * 256] ?? "";
  }
}

/** What no name of Kubernetes has in it. */
const SEPARATOR = "\n";

/** Of the endpoints of a slice, in their order. */
export class EndpointDetails {
  /** Names of pods, and codes of nodes. */
  readonly #text: string;
  readonly #table: NodeTable;

  constructor(text: string, table: NodeTable) {
    this.#text = text;
    this.#table = table;
  }

  /** @param count endpoints of the slice. */
  all(count: number): { readonly pod: string; readonly node: string }[] {
    const codes = this.#text.length - count * CODE_LENGTH;
    const pods = this.#text.slice(0, codes - 1).split(SEPARATOR);
    // A name with a line break in it is none that a pod has.
    const named = pods.length === count;
    return Array.from({ length: count }, (_, i) => ({
      pod: named ? pods[i] : "",
      node: this.#table.at(this.#text, codes + i * CODE_LENGTH),
    }));
  }

  /** Of slices with equally many endpoints. False, too, where the nodes have been given other codes meanwhile. */
  equals(other: EndpointDetails): boolean {
    return this.#text === other.#text && this.#table === other.#table;
  }
}

/** Packs what is said of the endpoints of slices. */
export class DetailPacker {
  #table = new NodeTable();

  /** Before those of another slice, of at most so many endpoints, are asked for their codes. */
  begin(count: number): void {
    // Slices of before keep the table that they were packed with.
    if (!this.#table.hasRoom(count)) this.#table = new NodeTable();
  }

  /** Of a node; "" where none is named. */
  codeOf(node: string): string {
    return this.#table.codeOf(node);
  }

  /**
   * Undefined: nothing is said of any endpoint.
   * @param pods with their namespace and "/" ahead where that is not the slice's, "" where nothing is said; one more item, which is written to: put
   *   together in one go the text is no tree of texts.
   */
  pack(pods: string[], codes: readonly string[]): EndpointDetails | undefined {
    const nodes = codes.join("");
    pods[codes.length] = nodes;
    const text = pods.join(SEPARATOR);
    const isSilent = text.length === nodes.length + codes.length && codes.every((code) => code === NO_CODE);
    return isSilent ? undefined : new EndpointDetails(text, this.#table);
  }
}

/** Whether two records of a slice name the same pods and nodes. */
export function sameDetails({ details: a }: SliceRecord, { details: b }: SliceRecord): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b);
}

/** An endpoint with all that its slice says of it. */
export interface DescribedEndpoint extends Endpoint {
  /** READY | SERVING | TERMINATING. */
  readonly state: number;
  readonly hints: Hints;
  /** Name, with its namespace and "/" ahead where that is not the service's; "": no pod, or not said. */
  readonly pod: string;
  /** "": not said, as the zone. */
  readonly node: string;
  readonly zone: string;
}

const UNKNOWN = { pod: "", node: "" };

/** The endpoints that `candidatesOf` finds, in the same order, with their details. */
export function describedEndpoints(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): DescribedEndpoint[] {
  const found = new Map<number | string, DescribedEndpoint>();
  for (const slice of slices) {
    if (slice.family !== family) continue;
    const details = slice.details?.all(slice.endpoints.length) ?? [];
    for (const { name, protocol: spoken, port } of slice.ports) {
      if (name !== portName || spoken !== protocol) continue;
      const endpoints = slice.endpoints.onPort(port);
      for (let i = 0; i < endpoints.length; i++) {
        const state = slice.states[i] ?? 0;
        const id = endpoints.id(i);
        const before = found.get(id);
        if (before !== undefined && !preferred(state, before.state)) continue;
        const { pod, node } = details[i] ?? UNKNOWN;
        const of = { state, hints: slice.hints?.[i] ?? NO_HINTS, pod, node, zone: slice.zones?.[i] ?? "" };
        found.set(id, { address: endpoints.address(i), port, local: endpoints.isLocal(i), ...of });
      }
    }
  }
  return [...found.values()];
}
