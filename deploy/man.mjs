/** Writes the manual page of the compiled program: node deploy/man.mjs FILE */
import fs from "node:fs";
import path from "node:path";
import { manPage } from "../dist/cli/commands/man.js";
import { programNamed } from "../dist/cli/commands/program.js";
import { programVersion } from "../dist/cli/version.js";

const [file = "dist/man/nft-proxier.8"] = process.argv.slice(2);
fs.mkdirSync(path.dirname(file), { recursive: true });
fs.writeFileSync(file, manPage(programNamed(), programVersion()));
