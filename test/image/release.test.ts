/** `npm run release` in a clean clone. build.ts has made its dry run there; a release with images of other machines is published here. */
import { Ajv } from "ajv";
import { spawn, spawnSync } from "node:child_process";
import { appendFileSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { buildah } from "../../deploy/release/image.ts";
import { Authority } from "../lab/api-server/certificates.ts";
import { mustRun } from "../lab/debian.ts";
import { eventually } from "../lab/eventually.ts";
import { clone, directory, dryRunOutput, type Report, reportFile } from "./build.ts";

const report = JSON.parse(readFileSync(reportFile, "utf8")) as Report;
const { version } = JSON.parse(readFileSync(path.resolve(import.meta.dirname, "../../package.json"), "utf8")) as {
  version: string;
};

const inClone = (name: string): string => path.join(clone, name);
const git = (...args: readonly string[]): string =>
  mustRun("git", ["-c", "user.name=t", "-c", "user.email=t@t.example", ...args], { cwd: clone });

/** Runs a shell command in the clone, as a reader of docs/releasing.md does. */
function shell(
  command: string,
  env: Readonly<Record<string, string>> = {},
): { readonly code: number | null; readonly output: string } {
  const options = { cwd: clone, encoding: "utf8", env: { ...process.env, ...env } } as const;
  const { status, stdout, stderr } = spawnSync("bash", ["-c", command], options);
  return { code: status, output: stdout + stderr };
}

const release = (...words: readonly string[]): ReturnType<typeof shell> =>
  shell(`npm run release -- ${words.join(" ")}`);

interface Sbom {
  readonly components: readonly {
    readonly purl: string;
    readonly properties?: readonly { readonly value: string }[];
  }[];
}

/** Reads the SBOM, and checks it against the schema of CycloneDX. */
function readSbom(): Sbom {
  const [file] = globSync(inClone("build/release/*.cdx.json"));
  const text = JSON.parse(readFileSync(file, "utf8")) as Sbom;
  const library = path.dirname(createRequire(import.meta.url).resolve("@cyclonedx/cyclonedx-library/package.json"));
  const schema = (name: string): object =>
    JSON.parse(readFileSync(path.join(library, "res/schema", `${name}.SNAPSHOT.schema.json`), "utf8")) as object;
  const ajv = new Ajv({ strict: false, validateFormats: false });
  for (const name of ["spdx", "jsf-0.82"]) {
    ajv.addSchema(schema(name), `http://cyclonedx.org/schema/${name}.SNAPSHOT.schema.json`);
  }
  expect(ajv.validate(schema("bom-1.5"), text), ajv.errorsText()).toBe(true);
  return text;
}

describe.skipIf(report.skipped !== undefined)("npm run release", () => {
  describe("-- --dry-run", () => {
    const output = existsSync(dryRunOutput) ? readFileSync(dryRunOutput, "utf8") : "";
    const [image = ""] = globSync(inClone("build/release/*.oci.tar"));

    test("lists the files with their sizes, and their sums are correct", () => {
      for (const name of [path.basename(image), `nft-proxier-${version}.cdx.json`, "SHA256SUMS"]) {
        expect(output).toMatch(new RegExp(`^${name} +[\\d,]+$`, "m"));
      }
      expect(mustRun("sha256sum", ["-c", "SHA256SUMS"], { cwd: inClone("build/release") })).toMatch(/^(\S+: OK\n){2}$/);
    });

    test("says what it skipped, and why", () => {
      expect(output).toContain("skipped the package: --only image --only sbom");
      if (!existsSync("/proc/sys/fs/binfmt_misc/qemu-aarch64") && process.arch === "x64") {
        expect(output).toContain("skipped the image for linux/arm64: this machine runs only linux/amd64 programs");
      }
      const standIns = /^skipped publishing the image for linux\/\w+: its base images are stand-ins .*cannot pull/m;
      expect(standIns.test(output)).toBe(image.endsWith(".stand-in.oci.tar"));
      expect(output).toContain("\nNothing is published.\n");
    });

    test("the SBOM lists the npm packages, Node, and the Debian packages of the image", () => {
      const purls = readSbom().components.map(({ purl }) => purl);
      const status = path.join(report.root!, "var/lib/dpkg/status.d/libnftnl11");
      const [, installed] = /^Version: (.*)$/m.exec(readFileSync(status, "utf8"))!;
      expect(purls).toEqual(
        expect.arrayContaining([
          expect.stringMatching(/^pkg:npm\/%40kubernetes\/client-node@/),
          expect.stringMatching(/^pkg:npm\/preact@/),
          expect.stringMatching(/^pkg:generic\/node@24/),
          expect.stringMatching(/^pkg:deb\/debian\/libc6@/),
          expect.stringContaining(`pkg:deb/debian/libnftnl11@${encodeURIComponent(installed)}?arch=`),
        ]),
      );
      expect(purls.filter((purl) => purl.includes("vitest"))).toEqual([]);
    });
  });

  describe("refuses", () => {
    const head = report.revision ?? "";
    const restore = (): string => git("reset", "-q", "--hard", head);

    test("a checkout with changes", () => {
      appendFileSync(inClone("README.md"), "x");
      expect(release("--dry-run")).toMatchObject({
        code: 1,
        output: expect.stringContaining("changes that are not committed: README.md") as string,
      });
      restore();
    });

    test("a version that differs between files, or has no dated section in CHANGELOG.md", () => {
      expect(
        shell(
          `sed -i 's/newTag: .*/newTag: 8.8.8/' deploy/kubernetes/kustomization.yaml; sed -i 's/^## ${version} .*/## ${version}/' CHANGELOG.md`,
        ).code,
      ).toBe(0);
      git("commit", "-qam", "wrong");
      const { code, output } = release("--dry-run");
      restore();
      expect(code).toBe(1);
      expect(output).toContain(
        `release: deploy/kubernetes/kustomization.yaml has version 8.8.8, not ${version}: run npm run release -- --set-version ${version}`,
      );
      expect(output).toContain(
        `release: CHANGELOG.md: the section "## ${version}" has no date; write "## ${version} (YYYY-MM-DD)"`,
      );
    });

    test("to publish if the package and the images are not those of the commit", () => {
      const { code, output } = release("--only=package", "--push");
      expect([code, output]).toEqual([1, expect.stringContaining("--push needs all parts")]);
    });
  });

  describe("9.9.9, with images of two machines, to a registry and origin", () => {
    const registry = path.join(directory, "..", "registry", "root", "usr/bin/docker-registry");
    const origin = path.join(directory, "origin.git");
    const packages = path.join(directory, "packages");
    let server: ReturnType<typeof spawn>;
    const certificate = path.join(directory, "registry.pem");
    const authorities = path.join(directory, "authorities.pem");

    beforeAll(() => {
      const files = path.join(directory, "registry-files");
      for (const old of [files, origin]) rmSync(old, { recursive: true, force: true });
      const configuration = path.join(directory, "registry.yml");
      const tls = `{ certificate: ${certificate}, key: ${certificate} }`;
      const http = `{ addr: "127.0.0.1:5000", tls: ${tls} }`;
      writeFileSync(
        configuration,
        `version: 0.1\nstorage: { filesystem: { rootdirectory: ${files} } }\nhttp: ${http}\n`,
      );
      const authority = new Authority();
      const { cert, key } = authority.server({ commonName: "registry", hosts: ["127.0.0.1"] });
      writeFileSync(certificate, cert + key);
      writeFileSync(authorities, authority.cert);
      server = spawn(registry, ["serve", configuration], { stdio: "ignore" });
      mustRun("git", ["clone", "-q", "--bare", clone, origin]);
      git("remote", "set-url", "origin", origin);
    });
    afterAll(() => server.kill());

    /** Stands for the result of `npm run release -- --only image` on a machine of the architecture. */
    function imageFrom(architecture: string, revision: string): void {
      const context = path.join(directory, "tiny");
      const ofProgram = path.join(context, "opt/nft-proxier");
      mkdirSync(ofProgram, { recursive: true });
      const purl = `pkg:deb/debian/libc6@1%3A2%2Bb~1?arch=${architecture}&distro=debian-12`;
      const externalRefs = [{ referenceType: "purl", referenceLocator: purl }];
      const libc = { name: "libc6", versionInfo: "1:2+b~1", licenseDeclared: "NOASSERTION", externalRefs };
      writeFileSync(path.join(ofProgram, "sbom.spdx.json"), JSON.stringify({ packages: [{}, libc] }));
      writeFileSync(
        path.join(context, "Dockerfile"),
        `FROM scratch\nLABEL org.opencontainers.image.revision=${revision}\nCOPY opt /opt\n`,
      );
      buildah("bud", "-q", `--platform=linux/${architecture}`, "-t", "nft-proxier-release", context);
      buildah(
        "push",
        "-q",
        "nft-proxier-release",
        `oci-archive:${inClone(`build/release/nft-proxier-9.9.9-linux-${architecture}.oci.tar`)}`,
      );
    }

    function packagesFrom(revision: string): void {
      mkdirSync(packages);
      for (const [name, status] of [
        ["", "prebuilds/x/status.d"],
        ["-linux-arm64-musl", "status.d"],
      ]) {
        const content = path.join(directory, `content${name}`, "package");
        mkdirSync(path.join(content, status), { recursive: true });
        writeFileSync(path.join(content, "package.json"), JSON.stringify({ version: "8.8.8", gitHead: revision }));
        writeFileSync(path.join(content, status, "libmnl0"), "Package: libmnl0\nVersion: 1.0\nArchitecture: arm64\n");
        const tarball = path.join(packages, `nft-proxier-nft${name}-8.8.8.tgz`);
        mustRun("tar", ["-czf", tarball, "-C", path.dirname(content), "package"]);
      }
    }

    test("writes the version, builds, prints the commands, and publishes with --push", async () => {
      expect(release("--set-version", "9.9.9").output).toContain("release: wrote deploy/kubernetes/kustomization.yaml");
      expect(readFileSync(inClone("CHANGELOG.md"), "utf8")).toMatch(/^## 9\.9\.9 \(\d{4}-\d\d-\d\d\)$/m);
      expect(git("grep", "-c", "9\\.9\\.9", "--", "package.json", "package-lock.json", "deploy")).toBe(
        "deploy/Dockerfile:2\ndeploy/chart/Chart.yaml:2\ndeploy/kubernetes/kustomization.yaml:1\npackage-lock.json:2\npackage.json:1\n",
      );
      // The library has a version of its own.
      shell('sed -i \'s/"version": .*/"version": "8.8.8",/\' src/nft/package.json');
      // As deploy/image/pin.mjs does, which needs the registries.
      shell(`sed -i -E 's/^(ARG \\w+_IMAGE=[^@ ]+)$/\\1@sha256:${"0".repeat(64)}/' deploy/Dockerfile`);
      git("commit", "-qam", "release: 9.9.9");
      const revision = git("rev-parse", "HEAD").trim();
      packagesFrom(revision);
      imageFrom("amd64", revision);
      imageFrom("arm64", revision);

      // The command of the workflow, with the given package instead of npm run pack.
      const steps = (
        parse(readFileSync(inClone(".github/workflows/release.yml"), "utf8")) as {
          jobs: { publish: { steps: { run?: string }[] } };
        }
      ).jobs.publish.steps;
      const command = steps.find(({ run }) => run?.includes("--push"))!.run!.replace("ghcr.io", "127.0.0.1:5000");
      const environment = {
        SSL_CERT_FILE: authorities,
        GITHUB_REPOSITORY_OWNER: "Somebody",
        GIT_COMMITTER_NAME: "t",
        GIT_COMMITTER_EMAIL: "t@t.example",
      };
      const printed = shell(`${command.replace("--push", "")} --packages ${packages}`, environment);
      expect(printed).toMatchObject({
        code: 0,
        output: expect.stringContaining("To publish, run these commands") as string,
      });
      expect(mustRun("git", ["tag"], { cwd: origin })).not.toContain("v9.9.9");
      const url = "https://127.0.0.1:5000/v2/somebody/nft-proxier/manifests/9.9.9";
      const accept = "application/vnd.oci.image.index.v1+json";
      const read = `fetch("${url}", { headers: { accept: "${accept}" } }).then(async (r) => console.log(r.status, await r.text()))`;
      const manifest = (): string => shell(`node -e '${read}'`, { NODE_EXTRA_CA_CERTS: authorities }).output;
      await eventually(() => expect(manifest()).toMatch(/^404 /));
      const published = shell(`${command} --packages ${packages}`, environment);
      expect(published.code, published.output).toBe(0);

      const index = JSON.parse(manifest().replace("200 ", "")) as {
        manifests: { platform: { architecture: string } }[];
      };
      expect(index.manifests.map(({ platform }) => platform.architecture)).toEqual(["amd64", "arm64"]);
      expect(mustRun("git", ["rev-parse", "v9.9.9^{commit}"], { cwd: origin }).trim()).toBe(revision);
      const debian = readSbom().components.filter(({ purl }) => purl.startsWith("pkg:deb"));
      expect(debian.map(({ purl, properties }) => [purl, properties?.[0].value])).toEqual([
        ["pkg:deb/debian/libc6@1%3A2%2Bb~1?arch=amd64&distro=debian-12", "nft-proxier-9.9.9-linux-amd64.oci.tar"],
        ["pkg:deb/debian/libc6@1%3A2%2Bb~1?arch=arm64&distro=debian-12", "nft-proxier-9.9.9-linux-arm64.oci.tar"],
        ["pkg:deb/debian/libmnl0@1.0?arch=arm64&distro=debian-12", "nft-proxier-nft-8.8.8.tgz"],
        ["pkg:deb/debian/libmnl0@1.0?arch=arm64&distro=debian-12", "nft-proxier-nft-linux-arm64-musl-8.8.8.tgz"],
      ]);

      // A second run has nothing to do but the image, and a moved commit is refused.
      const again = shell(`${command} --packages ${packages}`, environment);
      expect([again.code, again.output]).toEqual([0, expect.not.stringContaining("git push")]);
      git("commit", "-q", "--allow-empty", "-m", "later");
      const moved = shell(`${command} --packages ${packages}`, environment);
      expect([moved.code, moved.output]).toEqual([1, expect.stringContaining("origin has this tag at another commit")]);
    });
  });
});
