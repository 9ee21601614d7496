/** Prometheus' promtool from Debian's package: unpacked under build/, not installed. */
import path from "node:path";
import { unpacked } from "../lab/debian.ts";

/** Returns its path. The first call needs the network; throws with apt's message. */
export function promtool(): string {
  const directory = path.resolve(import.meta.dirname, "../../build/monitoring");
  const root = unpacked(directory, "bookworm", "promtool", (archive) => archive.download(["prometheus"]));
  return path.join(root, "usr/bin/promtool");
}
