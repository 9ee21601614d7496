/** Formats durations, times and rates. */

/** Formats a duration: "3 ms", "4.2 s", "5 min", "3 h", "2 d". */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** Sweden's order is that of ISO 8601, as in the log and in commands, whatever the viewer's language is. */
const ISO_ORDER = "sv";

/** Formats a time of day in the viewer's time zone: "01:49:05". */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(ISO_ORDER);
}

/** Formats a date and a time of day in the viewer's time zone: "2026-11-29 01:49:05". */
export function date(at: number): string {
  return new Date(at).toLocaleString(ISO_ORDER);
}

/** Shortens the text to this many characters. The end stays, because it tells as much as the beginning. */
export function shortened(text: string, most: number): string {
  const half = (most - 1) / 2;
  return text.length <= most ? text : `${text.slice(0, Math.ceil(half))}…${text.slice(-Math.floor(half))}`;
}

/** Formats a number per second: "0", "0.3", "12", "1,200". */
export function rate(perSecond: number): string {
  if (perSecond === 0 || perSecond >= 10) return Math.round(perSecond).toLocaleString("en");
  return perSecond < 0.05 ? "<0.1" : perSecond.toFixed(1).replace(".0", "");
}

export function withPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** The service's addresses, its ClusterIP first. */
export function addressesOf(port: {
  readonly clusterIP?: string;
  readonly loadBalancerIPs: readonly string[];
  readonly externalIPs: readonly string[];
}): string[] {
  const { clusterIP, loadBalancerIPs, externalIPs } = port;
  return [...new Set([...(clusterIP === undefined ? [] : [clusterIP]), ...loadBalancerIPs, ...externalIPs])];
}
