/**
 * Pod, node and zone of each endpoint. Only zone weights affect the service; the rest is for operators. So the details are
 * packed in as little memory as possible, and only become objects for the endpoints of a request.
 */
/** The number of values of two bytes. */
const MOST_PLACES = 1 << 16;
const CODE_LENGTH = 2;

/** Numbers for nodes and their zones, because many endpoints share them. */
class PlaceTable {
  readonly #nodes: string[] = [""];
  readonly #zones: string[] = [""];
  /** By zone and node. */
  readonly #numbers = new Map<string, Map<string, number>>([["", new Map([["", 0]])]]);

  hasRoom(count: number): boolean {
    return this.#nodes.length + count <= MOST_PLACES;
  }

  /** Returns 0 if node and zone are unknown. */
  numberOf(node: string, zone: string): number {
    let numbers = this.#numbers.get(zone);
    if (numbers === undefined) this.#numbers.set(zone, (numbers = new Map()));
    const known = numbers.get(node);
    if (known !== undefined) return known;
    const number = this.#nodes.push(node) - 1;
    this.#zones.push(zone);
    numbers.set(node, number);
    return number;
  }

  node(number: number): string {
    return this.#nodes[number] ?? "";
  }

  zone(number: number): string {
    return this.#zones[number] ?? "";
  }
}

/** A character that Kubernetes names never contain. */
const SEPARATOR = "\n";

/** Where an endpoint runs; "" if unknown. */
export interface PodAndNode {
  /** Name, preceded by its namespace and "/" if that is not the service's. */
  readonly pod: string;
  readonly node: string;
}

export const NOT_SAID: PodAndNode = Object.freeze({ pod: "", node: "" });

/** Details of the endpoints of a slice, in their order. */
export class EndpointDetails {
  /** Codes of places, then names of pods. */
  readonly #text: string;
  readonly #table: PlaceTable;

  constructor(text: string, table: PlaceTable) {
    this.#text = text;
    this.#table = table;
  }

  /** @param count number of endpoints in the slice. */
  all(count: number): PodAndNode[] {
    const pods = this.#text.slice(count * CODE_LENGTH + 1).split(SEPARATOR);
    // A name with a line break is not a pod's name.
    const named = pods.length === count;
    return Array.from({ length: count }, (_, i) => ({
      pod: named ? pods[i] : "",
      node: this.#table.node(this.#place(i)),
    }));
  }

  zone(index: number): string {
    return this.#table.zone(this.#place(index));
  }

  /**
   * Both slices must have the same number of endpoints. Also returns false if the places have been given other codes meanwhile.
   */
  equals(other: EndpointDetails): boolean {
    return this.#text === other.#text && this.#table === other.#table;
  }

  #place(index: number): number {
    const at = index * CODE_LENGTH;
    return this.#text.charCodeAt(at) + this.#text.charCodeAt(at + 1) * 256;
  }
}

/** Packs the details of the endpoints of slices. */
export class DetailPacker {
  #table = new PlaceTable();
  #codes = Buffer.alloc(256);

  /** Call it before the places of another slice, which has at most `count` endpoints. */
  begin(count: number): void {
    // Earlier slices keep the table that they were packed with.
    if (!this.#table.hasRoom(count)) this.#table = new PlaceTable();
    if (this.#codes.length < count * CODE_LENGTH) this.#codes = Buffer.alloc(count * CODE_LENGTH * 2);
  }

  /** Sets the place of the endpoint at an index; "" if unknown. */
  place(index: number, node: string, zone: string): void {
    const number = this.#table.numberOf(node, zone);
    this.#codes[index * CODE_LENGTH] = number;
    this.#codes[index * CODE_LENGTH + 1] = number >>> 8;
  }

  /**
   * Returns undefined if no endpoint has details.
   * @param pods names of the endpoints' pods, from index 1 on: with namespace and "/" in front if it is not the slice's, and ""
   * if unknown. The first item is overwritten, so that the text is joined at once and is not a tree of strings in V8.
   */
  pack(pods: string[]): EndpointDetails | undefined {
    const length = (pods.length - 1) * CODE_LENGTH;
    // One character per byte of any value.
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
