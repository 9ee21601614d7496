/** Handles of named objects. */
import { QuotaFlag } from "../kernel/constants.js";
import type { ObjectDump } from "../kernel/kernel.js";
import { objectKey } from "../language/object-kinds.js";
import type { ObjectKind } from "../language/vocabulary.js";
import type { ObjectSpec } from "../language/object-kinds.js";
import { OBJECT_TYPES } from "../language/vocabulary.js";
import type { DesiredState } from "../sync/desired-state.js";
import { TableError } from "../sync/results.js";
import type { KernelTable } from "./filled-sets.js";
import type { Counted } from "./set-spec.js";

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
  readonly #desired: DesiredState;
  readonly #table: KernelTable;

  /** @internal */
  constructor(name: { readonly kind: Kind; readonly object: string }, desired: DesiredState, table: KernelTable) {
    super(name);
    this.#desired = desired;
    this.#table = table;
  }

  /**
   * Reads the counts from the kernel. Resolves to undefined before the first `apply()`. Rejects with TableError.
   * @example
   * console.log((await requests.read())?.packets); // 0
   */
  read(): Promise<ObjectUse[Kind] | undefined> {
    return this.#use(false);
  }

  /**
   * Like `read()`, and starts the counts at 0 again. No packet is lost in between, or counted twice.
   * @example
   * console.log((await requests.reset())?.packets); // 0
   */
  reset(): Promise<ObjectUse[Kind] | undefined> {
    return this.#use(true);
  }

  async #use(reset: boolean): Promise<ObjectUse[Kind] | undefined> {
    const key = objectKey(this);
    if (!this.#desired.objects.has(key)) throw new TableError("invalid", `${key} was removed from the table`);
    const { object } = this;
    const { ref, call } = this.#table;
    const found = await call((kernel) => kernel.object(ref, { object, objType: OBJECT_TYPES[this.kind] }, reset));
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
