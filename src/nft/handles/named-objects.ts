/** Handles of named objects. */
import { QuotaFlag } from "../kernel/constants.js";
import type { ObjectDump } from "../kernel/kernel.js";
import type { ObjectKind, ObjectSpec } from "../language/rule.js";
import { TableError } from "../sync/results.js";
import type { Counted, SetFate } from "./set-spec.js";

/** The use of a named quota. */
export interface QuotaUse {
  /** Bytes of packets that it has seen, at most `bytes`. */
  readonly consumed: number;
  /** The quota. */
  readonly bytes: number;
  /** Whether the quota is used up. */
  readonly depleted: boolean;
}

/** The counts of named objects, by kind. Other kinds count nothing. */
export interface ObjectUse {
  readonly counter: Counted;
  readonly quota: QuotaUse;
}

/** The kernel's side of an object. Rejects with TableError. */
export interface ObjectReader {
  readonly fate: SetFate;
  /** Waits for calls of `apply()`. Returns undefined if the kernel has no such object. */
  read(reset: boolean): Promise<ObjectDump | undefined>;
}

/** A declared object. Rules refer to it by `kind` and name, maps by its name. */
export class NamedObject<Kind extends ObjectKind = ObjectKind> {
  readonly kind: Kind;
  /** Its name. */
  readonly object: string;

  /** @internal */
  constructor({ kind, object }: { readonly kind: Kind; readonly object: string }) {
    this.kind = kind;
    this.object = object;
  }
}

/** A declared counter or quota. */
export class CountingObject<Kind extends keyof ObjectUse = keyof ObjectUse> extends NamedObject<Kind> {
  readonly #reader: ObjectReader;

  /** @internal */
  constructor(name: { readonly kind: Kind; readonly object: string }, reader: ObjectReader) {
    super(name);
    this.#reader = reader;
  }

  /** Reads the counts from the kernel. Resolves to undefined before the first `apply()`. Rejects with TableError. */
  read(): Promise<ObjectUse[Kind] | undefined> {
    return this.#use(false);
  }

  /** Like `read()`, and starts the counts at 0 again. No packet is lost in between, or counted twice. */
  reset(): Promise<ObjectUse[Kind] | undefined> {
    return this.#use(true);
  }

  async #use(reset: boolean): Promise<ObjectUse[Kind] | undefined> {
    const { gone } = this.#reader.fate;
    if (gone !== undefined) throw new TableError("invalid", `${this.kind} ${this.object} was ${gone}`);
    const found = await this.#reader.read(reset);
    return found && (useOf(found) as ObjectUse[Kind] | undefined);
  }
}

function useOf({ data }: ObjectDump): Counted | QuotaUse | undefined {
  if (data.type === "counter") return { packets: Number(data.packets ?? 0n), bytes: Number(data.bytes ?? 0n) };
  if (data.type !== "quota") return undefined;
  const depleted = ((data.flags ?? 0) & QuotaFlag.depleted) !== 0;
  return { consumed: Number(data.consumed ?? 0n), bytes: Number(data.bytes), depleted };
}

/** The handle of an object with this specification. */
export type ObjectOf<Spec extends ObjectSpec> = Spec["kind"] extends keyof ObjectUse
  ? CountingObject<Spec["kind"]>
  : NamedObject<Spec["kind"]>;
