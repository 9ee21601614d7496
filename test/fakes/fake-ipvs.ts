/**
 * The state that kube-proxy's IPVS mode leaves in a kernel, for decisions; guests test the real one
 * (test/packets/ipvs.test.ts).
 */
import { familyOf, type IpFamily } from "../../src/base/ip.js";
import type { Protocol } from "../../src/base/protocols.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import type { Destination, VirtualServer } from "../../src/netlink/ipvs-table.js";
import type { LinkAddress } from "../../src/netlink/link-table.js";
import type { IpvsKernel } from "../../src/migration/leftovers/ipvs-pass.js";
import { serverText } from "../../src/migration/leftovers/ipvs-names.js";

const INDEX = 7;

interface FakeServer {
  readonly server: VirtualServer;
  destinations: Destination[];
}

export class FakeIpvs implements IpvsKernel {
  readonly servers: FakeServer[] = [];
  readonly sets = new Map<string, number[]>();
  readonly busySets = new Set<string>();
  /** Addresses of kube-ipvs0; undefined if there is no such interface. */
  bound: LinkAddress[] | undefined = [];
  kind = "dummy";
  /** Local addresses of this node's sockets. */
  readonly sockets = new Set<string>();
  /** Source addresses of this node's packets to elsewhere. */
  readonly source: Record<IpFamily, string | undefined> = { ip: "192.0.2.10", ip6: "2001:db8::10" };
  /** VIP → the source that its local route was given. */
  readonly sources = new Map<string, string>();
  /** Makes the next call fail with this errno. */
  failWith: string | undefined;
  checks = 0;

  /** Adds "TCP 10.96.0.1:80" with this many open connections. */
  serve(protocol: Protocol, address: string, port: number, open = 0, more: Partial<Destination> = {}): void {
    const family = familyOf(address);
    const server: VirtualServer = { family, fwmark: 0, protocol, address, port, scheduler: "rr" };
    const zeros = { method: 0, upper: 0, lower: 0, inactive: 0 };
    const destination = { family, address: "10.244.0.5", port: 8080, weight: 1, active: open, ...zeros, ...more };
    this.servers.push({ server, destinations: [destination] });
  }

  bind(...addresses: readonly string[]): void {
    for (const address of addresses) {
      const family = familyOf(address);
      this.bound?.push({ family, address, prefixLength: family === "ip" ? 32 : 128 });
    }
  }

  /** Ends all connections. */
  idle(): void {
    for (const one of this.servers) {
      one.destinations = one.destinations.map((destination) => ({ ...destination, active: 0, inactive: 0 }));
    }
  }

  get left(): string[] {
    return this.servers.map(({ server }) => serverText(server));
  }

  readonly ipvs = {
    virtualServers: (): Promise<VirtualServer[]> => {
      this.checks++;
      const errno = this.failWith;
      this.failWith = undefined;
      if (errno !== undefined) return Promise.reject(new KernelError("system", errno, { action: "test", errno }));
      return Promise.resolve(this.servers.map(({ server }) => server));
    },
    destinations: (server: VirtualServer) => Promise.resolve([...this.#of(server).destinations]),
    quiesce: (server: VirtualServer, { address, port }: Destination) => {
      const of = this.#of(server);
      of.destinations = of.destinations.map((one) =>
        one.address === address && one.port === port ? { ...one, weight: 0 } : one,
      );
      return Promise.resolve();
    },
    remove: (server: VirtualServer) => {
      this.servers.splice(this.servers.indexOf(this.#of(server)), 1);
      return Promise.resolve();
    },
  };

  readonly ipset = {
    names: () => Promise.resolve([...this.sets.keys()]),
    ports: (set: string) => Promise.resolve((this.sets.get(set) ?? []).map((port) => ({ port, protocol: undefined }))),
    destroy: (set: string) => {
      if (this.busySets.has(set)) return Promise.resolve("in-use" as const);
      this.sets.delete(set);
      return Promise.resolve("destroyed" as const);
    },
  };

  readonly links = {
    link: () => Promise.resolve(this.bound && { index: INDEX, kind: this.kind }),
    addressesOf: () => Promise.resolve([...(this.bound ?? [])]),
    deleteAddress: (_index: number, { address }: LinkAddress) => {
      this.bound = this.bound?.filter((one) => one.address !== address);
      return Promise.resolve();
    },
    deleteLink: () => {
      this.bound = undefined;
      return Promise.resolve();
    },
    sourceTo: (destination: string) => Promise.resolve(this.source[familyOf(destination)]),
    setLocalSource: (_index: number, address: string, source: string) => {
      this.sources.set(address, source);
      return Promise.resolve();
    },
    deleteLocalRoute: (_index: number, address: string) => {
      this.sources.delete(address);
      return Promise.resolve();
    },
  };

  socketAddresses = (): Promise<ReadonlySet<string>> => Promise.resolve(this.sockets);

  #of(server: VirtualServer): FakeServer {
    const found = this.servers.find((one) => serverText(one.server) === serverText(server));
    if (found === undefined) throw new Error(`no ${serverText(server)}`);
    return found;
  }
}
