const BUILT_IN: readonly string[] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/**
 * Completes input of `iptables-nft-restore`: declares the chains that have rules. A text has to declare only other chains (":NAME") and
 * policies (":FORWARD DROP"). Each table begins with "*".
 */
export function iptablesSave(text: string): string {
  const tables = text.split(/^(?=\*)/m).map((part) => {
    const [table = "", ...lines] = part.trim().split("\n");
    const chains = new Map<string, string>();
    for (const [, name = ""] of part.matchAll(/^-A (\S+)/gm))
      chains.set(name, BUILT_IN.includes(name) ? "ACCEPT" : "-");
    for (const [, name = "", policy = "-"] of part.matchAll(/^:(\S+)(?: (\S+))?$/gm)) chains.set(name, policy);
    const declared = Array.from(chains, ([name, policy]) => `:${name} ${policy} [0:0]`);
    return [table, ...declared, ...lines.filter((line) => !line.startsWith(":")), "COMMIT\n"].join("\n");
  });
  return tables.join("");
}
