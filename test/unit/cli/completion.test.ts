/** What is generated of the command line's definitions: shells complete all of it, and the manual page names all of it. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { completionScript } from "../../../src/cli/completion.js";
import { manPage } from "../../../src/cli/man.js";
import { commandOutline } from "../../../src/cli/program.js";

const outline = await commandOutline();

/** What bash offers behind these words, the last of which is being typed. */
function offered(...words: readonly string[]): string[] {
  const script = `${completionScript("bash", outline)}
    COMP_WORDS=(nft-proxier "$@"); COMP_CWORD=$#; _nft_proxier; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const text = execFileSync("bash", ["-c", script, "bash", ...words], { encoding: "utf8" });
  return text.trim().split("\n");
}

test("commands, their options, and the values of options that are one of a few", () => {
  expect(offered("st")).toEqual(["status"]);
  expect(offered("")).toEqual(expect.arrayContaining(["run", "services", "conntrack", "completion", "--config"]));
  expect(offered("services", "--no")).toEqual(["--no-headers"]);
  expect(offered("services", "-o", "")).toEqual(["table", "wide", "json", "yaml", "name"]);
  expect(offered("services", "default/web", "--output", "w")).toEqual(["wide"]);
  expect(offered("completion", "")).toEqual(expect.arrayContaining(["bash", "zsh", "fish"]));
  expect(offered("conntrack", "l")).toEqual(["list"]);
  expect(offered("conntrack", "list", "--ser")).toEqual(["--service"]);
  expect(offered("run", "--manifests", "/pro")).toEqual(["/proc"]);
});

test("every option of every command is in each script and in the manual page", () => {
  const texts = { fish: completionScript("fish", outline), man: manPage(outline, "1.2.3") };
  expect(outline.length).toBeGreaterThan(12);
  for (const { path, options } of outline) {
    expect(texts.man).toContain(`nft\\-proxier ${path.replaceAll("-", "\\-")}`.trimEnd());
    for (const { flags, names } of options) {
      expect(texts.man).toContain(flags.replaceAll("-", "\\-"));
      for (const name of names) {
        expect(texts.fish).toContain(name.startsWith("--") ? ` -l ${name.slice(2)} ` : ` -s ${name.slice(1)} `);
        expect(offered(...path.split(" ").filter((word) => word !== ""), name)).toContain(name);
      }
    }
  }
}, 60_000);

test.skipIf(!existsSync("/usr/bin/groff"))("groff reads the manual page without a warning", () => {
  const { stdout, stderr, status } = spawnSync("groff", ["-man", "-ww", "-Tutf8", "-P-cbou"], {
    input: manPage(outline, "1.2.3"),
    encoding: "utf8",
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toMatch(/nft[-‐−]proxier status \[options\]/);
  expect(stdout.replaceAll(/\s+/g, " ")).toContain("One of: table, wide, json, yaml, name.");
});
