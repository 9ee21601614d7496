/** From flags to the configuration: of a file with what the flags add to it, or of the flags alone. */
import { configFromFlags, ConfigError, loadConfig, type LoadedConfig, type Overrides } from "../config/index.js";
import { UserError } from "./errors.js";
import type { FlagValues } from "./flag-values.js";
import { type FlagSpec, KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";

/** @throws {UserError} naming everything that is wrong. */
export async function resolveConfig(flags: FlagValues): Promise<LoadedConfig> {
  const deprecated = KUBE_PROXY_FLAGS.flatMap((spec: FlagSpec) =>
    spec.deprecated !== undefined && given(flags, spec) ? [`--${spec.name} is deprecated: ${spec.deprecated}`] : [],
  );
  try {
    const loaded = await (flags.config === undefined || flags.config === ""
      ? configFromFlags(overridesOf(flags, () => true))
      : loadConfig(
          flags.config,
          overridesOf(flags, (spec) => spec.besideConfig === true),
        ));
    return { ...loaded, warnings: [...deprecated, ...loaded.warnings] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new UserError(error.message, { cause: error });
  }
}

function given(flags: FlagValues, spec: FlagSpec): boolean {
  return Object.hasOwn(flags, spec.name);
}

function overridesOf(flags: FlagValues, counts: (spec: FlagSpec) => boolean): Overrides {
  const fields: Record<string, unknown> = {};
  for (const spec of KUBE_PROXY_FLAGS as readonly FlagSpec[]) {
    if (spec.field === undefined || !given(flags, spec) || !counts(spec)) continue;
    setField(fields, spec.field.split("."), Reflect.get(flags, spec.name));
  }
  const hostname = flags["hostname-override"] ?? "";
  if (hostname !== "") fields["hostnameOverride"] = hostname;
  return { fields, master: flags.master ?? "" };
}

function setField(target: Record<string, unknown>, [key = "", ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  const section = (target[key] ??= {}) as Record<string, unknown>;
  setField(section, rest, value);
}
