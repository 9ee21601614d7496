/**
 * Records the modules that end up in bundles: node --import …/record-modules.mjs SCRIPT. Appends their ids to the file that RECORDED_MODULES
 * names, one line each, for every bundle that the script makes with rolldown.
 */
import { registerHooks } from "node:module";

const real = `${import.meta.resolve("rolldown")}?real`;
const wrapper = `
import { appendFileSync } from "node:fs";
import * as real from ${JSON.stringify(real)};
export * from ${JSON.stringify(real)};
const recorded = ({ output }) => {
  const ids = output.flatMap((chunk) => Object.entries(chunk.modules ?? {}).flatMap(([id, { renderedLength }]) => (renderedLength > 0 ? [id] : [])));
  appendFileSync(process.env.RECORDED_MODULES, ids.map((id) => id + "\\n").join(""));
  return { output };
};
export const rolldown = async (options) => {
  const bundle = await real.rolldown(options);
  return { write: async (to) => recorded(await bundle.write(to)), generate: async (to) => recorded(await bundle.generate(to)) };
};`;

registerHooks({
  resolve: (name, context, next) =>
    name === "rolldown"
      ? { url: `data:text/javascript,${encodeURIComponent(wrapper)}`, shortCircuit: true }
      : next(name, context),
});
