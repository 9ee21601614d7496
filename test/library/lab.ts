/** A network for programs of users: the machine that runs them, its client, and a machine behind it. */
import { once } from "node:events";
import { Namespace } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";

/** Longer than a greeting takes on a busy machine; only a missing greeting waits that long. */
export const GREETED_MS = patience(10_000);

export interface Lab {
  /** 192.0.2.1 and 198.51.100.1. Forwards packets, and greets with "host" on port 8000. */
  readonly host: Namespace;
  /** 192.0.2.2 and 192.0.2.3, on the host's interface `client`. */
  readonly client: Namespace;
  /** 198.51.100.2, on the host's interface `behind`. Greets on port 80 with "behind", and on port 81 with the client's address. */
  readonly behind: Namespace;
}

/** @param prefix makes the names of namespaces unique */
export async function createLab(prefix = ""): Promise<Lab> {
  const names = ["host", "client", "behind"].map((name) => prefix + name);
  const [host, client, behind] = await Promise.all(names.map((name) => Namespace.create(name)));
  await host.ip([
    "link set lo up",
    `link add client type veth peer name eth0 netns ${client.name}`,
    `link add behind type veth peer name eth0 netns ${behind.name}`,
    "address add 192.0.2.1/24 dev client",
    "address add 198.51.100.1/24 dev behind",
    "link set client up",
    "link set behind up",
  ]);
  await client.ip(["address add 192.0.2.2/24 dev eth0", "address add 192.0.2.3/24 dev eth0", "link set eth0 up"]);
  await behind.ip(["address add 198.51.100.2/24 dev eth0", "link set eth0 up"]);
  await host.sysctl({ "net.ipv4.ip_forward": 1, "net.netfilter.nf_conntrack_acct": 1 });
  await serve(host, 8000, '"host"');
  await serve(behind, 80, '"behind"');
  await serve(behind, 81, "s.remoteAddress");
  return { host, client, behind };
}

export async function destroyLab({ host, client, behind }: Lab): Promise<void> {
  await Promise.all([host, client, behind].map((namespace) => namespace.destroy()));
}

/** Greets each client, and keeps the connection open. @param greeting an expression; `s` is the socket. */
export async function serve(namespace: Namespace, port: number, greeting: string): Promise<void> {
  const script = `net.createServer((s) => { s.on("error", () => {}); s.write(${greeting}); }).listen(${port}, "0.0.0.0", () => console.log("ready"))`;
  const child = namespace.spawn([process.execPath, "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout!, "data");
}

/**
 * Opens this many connections at once, from an address of the namespace. Returns the greetings received within `ms`; connections without a greeting are
 * not in the list.
 */
export async function connect(
  namespace: Namespace,
  from: string,
  to: string,
  port: number,
  { count = 1, ms = patience(400) } = {},
): Promise<string[]> {
  const script = `const all = [];
    for (let i = 0; i < ${count}; i++)
      net.connect({ port: ${port}, host: "${to}", localAddress: "${from}" }).on("data", (d) => { all.push(String(d)); if (all.length === ${count}) end(); }).on("error", () => {});
    const end = () => { console.log(JSON.stringify(all)); process.exit(); };
    setTimeout(end, ${ms});`;
  return JSON.parse(await namespace.mustRun([process.execPath, "-e", script])) as string[];
}
