/**
 * Pins the base images of deploy/Dockerfile to the current digests in their registries. A digest covers both
 * architectures.
 *
 *   node deploy/image/pin.mjs [DOCKERFILE]
 *
 * Needs docker with buildx, and access to the registries. Commit the result, so that a build a year later starts from
 * the same images.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

const [file = path.resolve(import.meta.dirname, "../Dockerfile")] = process.argv.slice(2);

/** Returns the digest of the image's index from its registry. */
function digestOf(image) {
  const format = ["--format", "{{.Manifest.Digest}}"];
  const digest = execFileSync("docker", ["buildx", "imagetools", "inspect", image, ...format], { encoding: "utf8" });
  if (!/^sha256:[0-9a-f]{64}$/.test(digest.trim())) throw new Error(`${image}: not a digest: ${digest}`);
  return digest.trim();
}

const digests = new Map();
const pinned = readFileSync(file, "utf8").replace(
  /^(ARG \w+_IMAGE=)([^\s@]+)(?:@\S+)?$/gm,
  (_line, argument, image) => {
    if (!digests.has(image)) digests.set(image, digestOf(image));
    return `${argument}${image}@${digests.get(image)}`;
  },
);
writeFileSync(file, pinned);
for (const [image, digest] of digests) console.log(`${image} ${digest}`);
