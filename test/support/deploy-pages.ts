/** The documents of deploy/, one after another: commands and figures in them are tested wherever they are. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";

const DEPLOY = path.resolve(import.meta.dirname, "../../deploy");

/** Names of the pages, relative to the checkout. */
export const DEPLOY_PAGES: readonly string[] = readdirSync(DEPLOY)
  .filter((name) => name.endsWith(".md"))
  .map((name) => `deploy/${name}`);

export const deployPages = (): string =>
  DEPLOY_PAGES.map((name) => readFileSync(path.join(DEPLOY, "..", name), "utf8")).join("\n");
