import path from "node:path";
import process from "node:process";

/** The kernel's TASK_COMM_LEN is 16, with the NUL. */
const MOST_BYTES = 15;

/** Returns this program's name: its title, or the name of its main file while the title is Node's default. At most 15 bytes. */
export function ownProgramName(): string {
  const { title } = process;
  const main = process.argv.at(1);
  const own = path.basename(title.split(" ", 1)[0]);
  const isNode = own === "" || own === path.basename(process.execPath) || own === "node";
  const name = isNode && main !== undefined ? path.parse(main).name : own;
  return atMost(name === "" ? "node" : name);
}

/** Cuts the name between two characters. */
function atMost(name: string): string {
  let short = "";
  for (const character of name) {
    if (Buffer.byteLength(short + character) > MOST_BYTES) break;
    short += character;
  }
  return short;
}
