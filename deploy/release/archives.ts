/** The chart and the manifests as archives, which are the same bytes in each build of a commit. */
import { readdirSync } from "node:fs";
import path from "node:path";
import { mustRun } from "../../test/lab/debian.ts";

/** The files that `kubectl apply -k`, Prometheus and Grafana read, relative to deploy/. */
const MANIFESTS = ["canary", "kubeadm", "kubernetes", "preflight", "monitoring", "chart/monitoring"];

/** @param seconds the time of all files in the archive, since 1970 */
function pack(directory: string, names: readonly string[], prefix: string, target: string, seconds: number): void {
  const same = [
    "--sort=name",
    `--mtime=@${seconds}`,
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    "--mode=u=rwX,go=rX",
  ];
  const form = ["--use-compress-program=gzip -n", `--transform=s,^,${prefix}/,`];
  mustRun("tar", [...same, ...form, "-cf", target, "-C", directory, ...names]);
}

/** Packs deploy/chart as `helm package` does. helm itself would write the time of the build. */
export function packChart(root: string, target: string, seconds: number): void {
  const chart = path.join(root, "deploy", "chart");
  pack(chart, readdirSync(chart).toSorted(), "nft-proxier", target, seconds);
}

/** Packs the kustomizations and the files for monitoring, with the paths that they have in deploy/. */
export function packManifests(root: string, target: string, seconds: number): void {
  pack(path.join(root, "deploy"), MANIFESTS, path.basename(target, ".tgz"), target, seconds);
}
