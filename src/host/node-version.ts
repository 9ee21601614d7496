/** As package.json's "engines" say. */
const OLDEST = [22, 12] as const;

/** Why this Node cannot run the program, and what to do; undefined: it can. Loaded by any Node from 18 on. */
export function nodeProblem(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return undefined;
  return `Node ${OLDEST.join(".")} or later is needed, and this is ${version}: "npm install" puts one at node_modules/.bin/node`;
}
