// @ts-check
/**
 * Forwards ports of this machine to other machines, with one rule and a map from protocol and port to address and port.
 *
 *   node port-forwarder.js tcp:8080=192.0.2.2:80 udp:53=192.0.2.3:53
 *   node port-forwarder.js              removes all forwards
 *
 * The machine must forward packets: sysctl net.ipv4.ip_forward=1.
 */
import { openKernel, Table } from "@nft-proxier/nft";

/** The bit of the connection mark that identifies forwarded connections. Other programs may use the other bits. */
const FORWARDED = 0x1000;

const kernel = await openKernel();
const table = new Table(kernel, { family: "ip", name: "port-forwarder" });

const forwards = table.set({
  set: "forwards",
  key: ["inet_proto", "inet_service"],
  data: ["ipv4_addr", "inet_service"],
});
for (const argument of process.argv.slice(2)) {
  const [, protocol, port, address, to] = /^(\w+):(\d+)=([\d.]+):(\d+)$/.exec(argument) ?? [];
  if (protocol === undefined) throw new Error(`not PROTOCOL:PORT=ADDRESS:PORT: ${argument}`);
  const name = /** @type {import("@nft-proxier/nft").ProtocolName} */ (protocol);
  forwards.put([name, Number(port)], [address, Number(to)]);
}

table.chain({
  chain: "prerouting",
  base: { type: "nat", hook: "prerouting", priority: "dstnat" },
  rules: [
    {
      statements: [
        { field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" },
        { field: ["meta l4proto", "th dport"], value: "@forwards" },
        { action: "set", field: "ct mark", value: { from: "ct mark", mask: ~FORWARDED >>> 0, xor: FORWARDED } },
        { action: "dnat", address: { key: ["meta l4proto", "th dport"], map: "forwards", data: "address-port" } },
      ],
    },
  ],
});
// Masqueraded, so that answers come back through this machine.
table.chain({
  chain: "postrouting",
  base: { type: "nat", hook: "postrouting", priority: "srcnat" },
  rules: [
    {
      statements: [{ field: "ct mark", mask: FORWARDED, value: FORWARDED }, { action: "masquerade" }],
    },
  ],
});

await table.apply();
console.log(table.render());
await kernel.close();
