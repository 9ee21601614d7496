/**
 * Loaded by npm before its own code (deploy/bootstrap.mjs): npm silently leaves out optional packages whose `engines` do not
 * include the version of Node that runs npm. The packages here run on the pinned Node instead, so npm gets that version.
 */
"use strict";
const { optionalDependencies } = require("../package.json");
Object.defineProperty(process, "version", { value: `v${optionalDependencies[`node-linux-${process.arch}`]}` });
