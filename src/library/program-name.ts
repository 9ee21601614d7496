import path from "node:path";
import process from "node:process";

/** TASK_COMM_LEN counts the NUL. */
const MOST_BYTES = 15;

/** What the program calls itself: its title, or the name of its main file while that is Node's. At most 15 bytes. */
export function programName(title = process.title, main = process.argv[1]): string {
  const own = path.basename(title.split(" ", 1)[0]);
  const isNode = own === "" || own === path.basename(process.execPath) || own === "node";
  const name = isNode && main !== undefined ? path.parse(main).name : own;
  return atMost(name === "" ? "node" : name);
}

/** Whole characters. */
function atMost(name: string): string {
  let short = "";
  for (const character of name) {
    if (Buffer.byteLength(short + character) > MOST_BYTES) break;
    short += character;
  }
  return short;
}
