/**
 * Random objects, random changes, random failures. After each quiet period, the kernel's tables equal those that a fresh start on the same
 * objects writes, and packets go where the services say.
 *
 * One run is one seed. A failure names it; `RANDOM_SEED=<seed>` runs only that one.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { defaultConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import { FakeInterfaces, interfaceAddress } from "../../fakes/fake-interfaces.ts";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { nodeRecord } from "../../support/decoded.ts";
import { nodePortAddresses, nodeFacts } from "../../../src/node/node-facts.js";
import { Proxier } from "../../../src/proxier/proxier.js";
import { patience } from "../../lab/patience.js";
import { Claimants, servedBy } from "./support/claimants.js";
import { expectations } from "./support/expected.js";
import { Packets } from "./support/packets.js";
import { isOfService, refuse } from "./support/refusing.js";
import { normalForm, readTables, type TableView } from "./support/tables.js";
import { trouble } from "./support/trouble.js";
import { FAMILIES, NODE, NODE_ADDRESSES, POD_CIDRS, World } from "./support/world.js";
import { SILENT } from "../../support/log.ts";
import { atLength } from "../../lab/length.ts";
import { fakeTime, pass } from "./support/fake-time.js";
import { Dice } from "../../support/dice.ts";

const STEPS_A_SEED = 50;
const SEEDS = atLength({ short: 2, usual: 8, nightly: 240 });
const FIRST_SEED = Number(process.env["RANDOM_SEED"] ?? 1);
const COUNT = process.env["RANDOM_SEED"] === undefined ? SEEDS : 1;
/** Maximum number of steps between two quiet points. */
const MOST_STEPS = 6;

const LOCAL = FAMILIES.flatMap((family) => NODE_ADDRESSES[family].map((address) => ({ family, address })));

class Run {
  readonly #dice: Dice;
  readonly #world: World;
  readonly #kernel = new FakeKernel();
  readonly #other = this.#kernel.asOther(undefined, "nft");
  readonly #config: ProxyConfig;
  readonly #inPieces: boolean;
  /** Set for a kernel that does not name the rejected object, like Linux before 6.0, and that takes 20 ms for each transaction. */
  readonly #unnamed: ReturnType<typeof refuse> | undefined;
  #proxier: Proxier;
  /** Past steps, to help to understand a failure. */
  readonly #story: string[] = [];

  constructor(seed: number) {
    this.#dice = new Dice(seed * 7919);
    this.#world = new World(this.#dice);
    this.#inPieces = seed % 2 === 0;
    if (seed % 4 > 1) this.#unnamed = refuse(this.#kernel, "nothing");
    const config = defaultConfig();
    this.#config = {
      ...config,
      clusterCIDRs: FAMILIES.map((family) => POD_CIDRS[family]),
      nftables: { ...config.nftables, masqueradeAll: this.#dice.chance(20) },
    };
    this.#proxier = this.#start(this.#kernel, true);
  }

  async steps(count: number): Promise<void> {
    for (let step = 0; step < count;) {
      const burst = 1 + this.#dice.below(MOST_STEPS);
      for (let i = 0; i < burst; i++, step++) await this.#step();
      await this.#quiet();
      await this.#compare();
    }
    await this.#proxier.stop();
  }

  /** Adds the steps so far to the error. */
  explain(error: unknown): Error {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return new Error(`${text}\n\nafter:\n${this.#story.slice(-40).join("\n")}`);
  }

  get #transactions(): number {
    return this.#unnamed === undefined ? 0 : this.#unnamed.refused + this.#unnamed.passed;
  }

  #start(kernel: FakeKernel, watch: boolean): Proxier {
    const proxier = new Proxier({
      config: this.#config,
      nodeName: NODE,
      families: FAMILIES,
      kernel,
      log: SILENT,
      clock: { now: () => performance.now() + 20 * this.#transactions },
      interfaces: new FakeInterfaces(LOCAL.map(({ address }) => interfaceAddress(address))),
      // Nearly all services then count as large: they are written port by port.
      ...(this.#inPieces && { serviceElements: 1 }),
      watch,
    });
    this.#world.tell(proxier);
    proxier.synced();
    return proxier;
  }

  async #step(): Promise<void> {
    if (this.#unnamed !== undefined && this.#dice.chance(20)) {
      const bad = this.#dice.below(9);
      this.#unnamed.refuses = isOfService(new Set([bad]));
      this.#story.push(`refuse 10.96.0.${bad + 1}`);
    }
    const roll = this.#dice.below(100);
    if (roll < 68) {
      this.#story.push(this.#world.change(this.#proxier));
      this.#proxier.flush();
    } else if (roll < 96) {
      this.#story.push(await trouble(this.#dice, this.#kernel, this.#other));
    } else {
      await this.#proxier.stop();
      this.#proxier = this.#start(this.#kernel, true);
      this.#proxier.flush();
      this.#story.push("restart");
    }
    const wait = this.#dice.pick([0, 0, 0, 5, 30, 200, 3000]);
    if (wait > 0 || this.#dice.chance(30)) await pass(wait);
  }

  /** Long enough for every wait: retries, back-off of repairs, then unused chains, then the next write. */
  async #quiet(): Promise<void> {
    if (this.#unnamed !== undefined) this.#unnamed.refuses = () => false;
    this.#proxier.flush();
    await pass(100);
    for (const ms of [30_000, 61_000, 61_000, 1000]) {
      await pass(ms);
      this.#proxier.flush();
      await pass(100);
    }
    this.#story.push("--- quiet");
  }

  async #compare(): Promise<void> {
    const fresh = new FakeKernel();
    const proxier = this.#start(fresh, false);
    expect((await proxier.sync()).ok).toBe(true);
    const tables = await readTables(this.#other);
    const [have, want] = [normalForm(tables), normalForm(await readTables(fresh))];
    const odd = [
      ...without(have, want).map((line) => `has: ${line}`),
      ...without(want, have).map((line) => `lacks: ${line}`),
    ];
    if (odd.length > 0) throw new Error(`different from a fresh start:\n${odd.join("\n")}`);
    for (const table of tables) this.#checkPackets(table, proxier);
    await proxier.stop();
  }

  #checkPackets(table: TableView, { model }: Proxier): void {
    const family = table.family === "ip" ? "ip" : "ip6";
    const node = this.#world.node;
    const { addresses } = nodePortAddresses(
      this.#config,
      nodeFacts(this.#config, NODE, node && nodeRecord(node)),
      family,
      LOCAL.filter((local) => local.family === family),
    );
    const packets = new Packets(table, NODE_ADDRESSES[family]);
    const views = this.#world.services.flatMap((service) => model.views(family, service));
    const claimants = new Claimants(this.#world.objects.values(), family);
    expect(servedBy(views), `${family}: owners of VIPs`).toEqual(claimants.holders);
    const wanted = expectations({
      family,
      views,
      nodePortAddresses: addresses === "all" ? NODE_ADDRESSES[family] : addresses,
      serviceCIDRs: model.serviceCIDRs(family),
      masqueradeAll: this.#config.nftables.masqueradeAll,
      guarded: claimants.guarded.bind(claimants),
    });
    for (const connection of wanted) {
      expect(packets.outcomes(connection), `${family} ${connection.what}`).toEqual(connection.outcomes);
    }
  }
}

function without(all: readonly string[], those: readonly string[]): string[] {
  const set = new Set(those);
  return all.filter((line) => !set.has(line));
}

beforeEach(() => {
  fakeTime();
});
afterEach(() => {
  vi.useRealTimers();
});

describe("after any changes and faults the tables equal those of a fresh start, and packets reach their services", () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + COUNT; seed++) {
    it(`RANDOM_SEED=${seed}: ${STEPS_A_SEED} steps`, { timeout: patience(600_000) }, async () => {
      const run = new Run(seed);
      await run.steps(STEPS_A_SEED).catch((error: unknown) => {
        throw run.explain(error);
      });
    });
  }
});
