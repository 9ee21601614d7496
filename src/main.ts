#!/usr/bin/env node
import { start } from "./start.js";

await start(() => import("./cli/commands/program.js"));
