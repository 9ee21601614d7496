/**
 * `npm run test:rollback -- [COMMIT...]`: upgrade from older versions and rollback to them, under load.
 *
 * Builds each COMMIT under build/versions/ (a minute or two the first time; npm packages are downloaded), then runs the tier `rollback`
 * with them. The default commits are those in test/rollback/README.md. Exit code and last line are the runner's.
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import { root } from "../checks.ts";
import { DEFAULT_COMMITS, prepareVersion, VERSIONS_VARIABLE } from "./versions.ts";

const given = process.argv.slice(2);
const versions = (given.length > 0 ? given : DEFAULT_COMMITS).map(prepareVersion);
const runner = spawnSync(process.execPath, [path.join(root, "test", "run.ts"), "--only", "rollback"], {
  stdio: "inherit",
  env: { ...process.env, [VERSIONS_VARIABLE]: JSON.stringify(versions) },
});
process.exitCode = runner.status ?? 1;
