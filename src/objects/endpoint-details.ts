/**
 * Whose an endpoint is, and where: its pod, its node and its zone. Nothing that is served depends on it but what weights of zones say, operators alone are
 * told; so it is kept in as little memory as will do, and made into objects for those that a request is about.
 */
/** As many as two bytes tell apart. */
const MOST_PLACES = 1 << 16;
const CODE_LENGTH = 2;

/** Nodes and their zones by number: many endpoints are on each. */
class PlaceTable {
  readonly #nodes: string[] = [""];
  readonly #zones: string[] = [""];
  readonly #numbers = new Map<string, number>([["", 0]]);
  /** By zone and node, of nodes in other zones than they were first said to be in. */
  readonly #moved = new Map<string, number>();

  hasRoom(count: number): boolean {
    return this.#nodes.length + count <= MOST_PLACES;
  }

  /** 0: nothing is said. */
  numberOf(node: string, zone: string): number {
    const known = this.#numbers.get(node);
    if (known === undefined) return this.#add(this.#numbers, node, node, zone);
    // Nodes stay in their zones: no look-up of that.
    if (this.#zones[known] === zone) return known;
    const key = `${zone}\n${node}`;
    return this.#moved.get(key) ?? this.#add(this.#moved, key, node, zone);
  }

  node(number: number): string {
    return this.#nodes[number] ?? "";
  }

  zone(number: number): string {
    return this.#zones[number] ?? "";
  }

  #add(to: Map<string, number>, key: string, node: string, zone: string): number {
    const number = this.#nodes.push(node) - 1;
    this.#zones.push(zone);
    to.set(key, number);
    return number;
  }
}

/** What no name of Kubernetes has in it. */
const SEPARATOR = "\n";

/** Of the endpoints of a slice, in their order. */
export class EndpointDetails {
  /** Codes of places, and names of pods. */
  readonly #text: string;
  readonly #table: PlaceTable;

  constructor(text: string, table: PlaceTable) {
    this.#text = text;
    this.#table = table;
  }

  /** @param count endpoints of the slice. */
  all(count: number): { readonly pod: string; readonly node: string }[] {
    const pods = this.#text.slice(count * CODE_LENGTH + 1).split(SEPARATOR);
    // A name with a line break in it is none that a pod has.
    const named = pods.length === count;
    return Array.from({ length: count }, (_, i) => ({
      pod: named ? pods[i] : "",
      node: this.#table.node(this.#place(i)),
    }));
  }

  zone(index: number): string {
    return this.#table.zone(this.#place(index));
  }

  /** Of slices with equally many endpoints. False, too, where the places have been given other codes meanwhile. */
  equals(other: EndpointDetails): boolean {
    return this.#text === other.#text && this.#table === other.#table;
  }

  #place(index: number): number {
    const at = index * CODE_LENGTH;
    return this.#text.charCodeAt(at) + this.#text.charCodeAt(at + 1) * 256;
  }
}

/** Packs what is said of the endpoints of slices. */
export class DetailPacker {
  #table = new PlaceTable();
  #codes = Buffer.alloc(256);

  /** Before those of another slice, of at most so many endpoints, are asked for their places. */
  begin(count: number): void {
    // Slices of before keep the table that they were packed with.
    if (!this.#table.hasRoom(count)) this.#table = new PlaceTable();
    if (this.#codes.length < count * CODE_LENGTH) this.#codes = Buffer.alloc(count * CODE_LENGTH * 2);
  }

  /** Notes where an endpoint is, by its index among them; "" where that is not said. */
  place(index: number, node: string, zone: string): void {
    const number = this.#table.numberOf(node, zone);
    this.#codes[index * CODE_LENGTH] = number;
    this.#codes[index * CODE_LENGTH + 1] = number >>> 8;
  }

  /**
   * Undefined: nothing is said of any endpoint.
   * @param pods the first item is written to, and not read: put together in one go the text is no tree of texts. Behind it those of the endpoints, with their
   *   namespace and "/" ahead where that is not the slice's, "" where nothing is said.
   */
  pack(pods: string[]): EndpointDetails | undefined {
    const length = (pods.length - 1) * CODE_LENGTH;
    // A byte for each character, whatever their values.
    pods[0] = this.#codes.toString("latin1", 0, length);
    const text = pods.join(SEPARATOR);
    if (text.length === length + pods.length - 1 && this.#isSilent(length)) return undefined;
    return new EndpointDetails(text, this.#table);
  }

  #isSilent(length: number): boolean {
    for (let i = 0; i < length; i++) if (this.#codes[i] !== 0) return false;
    return true;
  }
}
