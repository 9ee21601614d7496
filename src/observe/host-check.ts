/**
 * Guards against DNS rebinding. Another site's page can make its own name resolve to this node, and would then read our answers
 * as its own. Its requests carry that name as Host.
 */
import { isIP } from "node:net";
import { textReply } from "./http-server.js";

/** @returns a function that checks whether a Host header ("node-1:10249") is an address, localhost, or one of the names. */
export function hostCheck(names: readonly string[]): (host: string) => boolean {
  const known = new Set(["localhost", ...names.map((name) => name.toLowerCase())]);
  return (host) => {
    const name = host.replace(/:\d*$/, "").toLowerCase();
    return known.has(name) || isIP(name.replace(/^\[(.*)\]$/, "$1")) !== 0;
  };
}

export const OTHER_HOST = textReply(
  403,
  "request this by address, localhost or the node's name: another site could read it through its own name\n",
);
