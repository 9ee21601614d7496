/** A list as it arrives: no page is ever in memory as a whole, however large a page the server chooses to send. */
import { isFields, reasonOf } from "../../base/unknown.js";
import { JsonListReader } from "../json-list.js";
import { ProtocolError } from "./errors.js";

/** What a list says besides its items. */
export interface ListMeta {
  readonly resourceVersion: string;
  /** Token of the next page; "": that was the last one. */
  readonly continue: string;
  /** Objects that follow; undefined when the server does not say. */
  readonly remaining: number | undefined;
}

export class ListBody {
  readonly #reader = new JsonListReader();

  /** The items that end in this chunk, in order. Throws `ProtocolError`. */
  *push(chunk: Buffer): Generator<unknown, void, undefined> {
    try {
      yield* this.#reader.push(chunk);
    } catch (error) {
      throw noJson(error);
    }
  }

  /** To be called when the body is over. Throws `ProtocolError`. */
  end(): ListMeta {
    let list: unknown;
    try {
      list = this.#reader.end();
    } catch (error) {
      throw noJson(error);
    }
    const metadata = isFields(list) ? list["metadata"] : undefined;
    if (!isFields(metadata)) throw new ProtocolError("the answer is no list of the Kubernetes API");
    const { resourceVersion, continue: token, remainingItemCount: remaining } = metadata;
    return {
      resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
      continue: typeof token === "string" ? token : "",
      remaining: typeof remaining === "number" ? remaining : undefined,
    };
  }
}

function noJson(error: unknown): ProtocolError {
  return new ProtocolError(`the answer is no JSON: ${reasonOf(error)}`, { cause: error });
}
