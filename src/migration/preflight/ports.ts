/** Checks whether the addresses of the health and metrics servers will be free when kube-proxy is gone. Pure. */
import { hostAndPort } from "../../base/ip.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { isLoopback, isUnspecified, type LocalAddress } from "../../node/node-facts.js";
import { note, ok, problem, type Said } from "./finding.js";
import type { Listener } from "../../node/socket-listeners.js";

export interface PortFacts {
  readonly config: Pick<ProxyConfig, "healthzBindAddress" | "metricsBindAddress" | "bindAddressHardFail">;
  readonly listeners: readonly (Listener & { readonly process?: { readonly pid: number; readonly name: string } })[];
  readonly local: readonly LocalAddress[];
  /** kube-proxy or nft-proxier has rules here, so an unknown listener is likely theirs. */
  readonly proxyHere: boolean;
}

const FIELDS = ["healthzBindAddress", "metricsBindAddress"] as const;

/** Returns listeners on one of the configured ports, at an address that conflicts. */
export function colliding(config: PortFacts["config"], listeners: readonly Listener[]): Listener[] {
  return FIELDS.flatMap((field) => listeners.filter((listener) => collides(config[field], listener)));
}

export function checkPorts(facts: PortFacts): Said[] {
  return FIELDS.flatMap((field) => ofField(field, facts));
}

function ofField(field: (typeof FIELDS)[number], { config, listeners, local, proxyHere }: PortFacts): Said[] {
  const bind = config[field];
  if (bind === "") return [ok(`${field} is off`)];
  const { host } = hostAndPort(bind);
  if (!isUnspecified(host) && !isLoopback(host) && !local.some(({ address }) => address === host)) {
    const what = `${field} is ${bind}, but no interface has that address`;
    const remedy = "set 0.0.0.0 to listen on all addresses";
    return [
      config.bindAddressHardFail
        ? problem(`${what}, so nft-proxier would exit (bindAddressHardFail)`, remedy)
        : note(what, remedy),
    ];
  }
  const taken = listeners.filter((listener) => collides(bind, listener));
  if (taken.length === 0) return [ok(`${field} ${bind} is free`)];
  const strangers = taken.filter(({ process }) => process !== undefined && !isProxy(process.name));
  if (strangers.length > 0) {
    const names = strangers.map(({ process }) => `${process?.name} (${process?.pid})`);
    return [
      problem(
        `${field} ${bind} is in use by ${[...new Set(names)].join(", ")}`,
        "end that program, or set another port",
      ),
    ];
  }
  if (taken.every(({ process }) => process !== undefined))
    return [ok(`${field} ${bind} is in use by ${taken[0]?.process?.name}, and free after it exits`)];
  const what = `${field} ${bind} is in use by a process that is not visible from here`;
  if (proxyHere) return [ok(`${what}; it is probably kube-proxy, which has rules here`)];
  return [note(what, "run `ss -ltnp` on the node to see which one")];
}

/** The name as in /proc/PID/comm. */
function isProxy(name: string): boolean {
  return name === "kube-proxy" || name === "nft-proxier";
}

function collides(bind: string, listener: Listener): boolean {
  if (bind === "") return false;
  const { host, port } = hostAndPort(bind);
  if (port !== listener.port) return false;
  return isUnspecified(host) || isUnspecified(listener.address) || host === listener.address;
}
