import { DetailPacker } from "../endpoint-details.js";
import { parseAddress } from "../../base/ip.js";
import { type Pieces, runAtOnce } from "../../base/time-slice.js";
import { type Fields, isFields } from "../../base/unknown.js";
import type { KubeKind, KubeObject } from "../object-sink.js";
import { cidrsOf, type DecodeOptions, FieldProblems, fieldsOf } from "./field-problems.js";
import { decodeNode } from "./decode-node.js";
import { decodeService } from "./decode-service.js";
import { decodeSlice } from "./decode-slice.js";

/** More distinct names than a cluster has at one time. Beyond it, old names have piled up. */
const MAX_INTERNED = 1 << 16;

export interface DecoderOptions {
  /** Name of this node. */
  readonly nodeName: string;
  /** Feature gate AllowServiceExternalIPs. Default true. */
  readonly allowExternalIPs?: boolean;
  /** Called for each endpoint that is a Pod. @param pod "namespace/name". */
  readonly onPod?: (address: string, pod: string) => void;
}

/**
 * Decodes JSON objects from the API server or a file, as they arrive, into the program's records. Any field may contain
 * anything. Parts that cannot be served are listed in the record's problems, and never stop the rest.
 */
export class ObjectDecoder {
  readonly #options: DecodeOptions;
  readonly #onPod: DecoderOptions["onPod"];
  #names = new Map<string, string>();

  constructor({ nodeName, allowExternalIPs = true, onPod }: DecoderOptions) {
    this.#onPod = onPod;
    this.#options = {
      nodeName,
      allowExternalIPs,
      intern: (text) => this.#intern(text),
      details: new DetailPacker(),
    };
  }

  /** @param name "namespace/name", or only the name for cluster-wide kinds. */
  decode(kind: KubeKind, name: string, object: Fields): KubeObject {
    return runAtOnce(this.decodeInPieces(kind, name, object));
  }

  /**
   * Like `decode`, in pieces, because an object may have tens of thousands of ports. Decode no other object of its kind in
   * between.
   */
  *decodeInPieces(kind: KubeKind, name: string, object: Fields): Pieces<KubeObject> {
    const problems = new FieldProblems();
    switch (kind) {
      case "Service": {
        const record = yield* decodeService(name, object, this.#options, problems);
        return { kind, name, record, skipped: problems.skipped, problems: problems.all, refused: problems.refused };
      }
      case "EndpointSlice": {
        if (this.#onPod !== undefined) reportPods(name, object, this.#onPod);
        return yield* decodeSlice(name, object, this.#options, problems);
      }
      case "Node":
        return { kind, name, record: decodeNode(object, problems), problems: problems.all };
      case "ServiceCIDR": {
        const spec = fieldsOf(object["spec"], "spec", problems);
        return { kind, name, record: cidrsOf(spec["cidrs"], "spec.cidrs", problems), problems: problems.all };
      }
    }
  }

  #intern(text: string): string {
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    if (this.#names.size >= MAX_INTERNED) this.#names = new Map();
    this.#names.set(text, text);
    return text;
  }
}

function reportPods(slice: string, { endpoints }: Fields, onPod: (address: string, pod: string) => void): void {
  for (const endpoint of Array.isArray(endpoints) ? (endpoints as unknown[]) : []) {
    if (!isFields(endpoint) || !Array.isArray(endpoint["addresses"]) || !isFields(endpoint["targetRef"])) continue;
    const { kind, name, namespace } = endpoint["targetRef"];
    const [text] = endpoint["addresses"] as unknown[];
    const address = typeof text === "string" ? parseAddress(text) : undefined;
    if (address === undefined || kind !== "Pod" || typeof name !== "string") continue;
    const own = typeof namespace === "string" && namespace !== "" ? namespace : slice.slice(0, slice.indexOf("/"));
    onPod(address, `${own}/${name}`);
  }
}

/**
 * "namespace/name" (namespace "default" if missing), or the name of a cluster-wide object. Returns undefined if there is no
 * name.
 */
export function nameOf(kind: KubeKind, object: Fields): string | undefined {
  const { metadata } = object;
  if (!isFields(metadata)) return undefined;
  const { name, namespace } = metadata;
  if (typeof name !== "string" || name === "") return undefined;
  if (kind === "Node" || kind === "ServiceCIDR") return name;
  return `${typeof namespace === "string" && namespace !== "" ? namespace : "default"}/${name}`;
}
