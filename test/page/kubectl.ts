/** kubectl from Debian's package, with a kustomize that knows the patches of deploy/: unpacked under build/, not installed. */
import path from "node:path";
import { unpacked } from "../lab/debian.ts";

/** Returns its path. The first call needs the network; throws with apt's message. */
export function kubectl(): string {
  const directory = path.resolve(import.meta.dirname, "../../build/kubectl");
  const root = unpacked(directory, "trixie", "kubectl", (archive) => archive.download(["kubectl"]));
  return path.join(root, "usr/bin/kubectl");
}
