/** Not in setup.ts, which loads the modules that read configurations, because commands that only ask the kernel do not need them. */
import { KernelError } from "../nft/kernel/errors.js";
import { NftKernel } from "../nft/kernel/nft-kernel.js";
import { UserError } from "./stdio.js";

/** Opens the kernel in this network namespace. Throws a UserError that names what is missing: permission, nf_tables or the addon. */
export async function openKernel(): Promise<NftKernel> {
  try {
    return await NftKernel.open();
  } catch (error) {
    if (error instanceof KernelError) throw new UserError(error.message, { cause: error });
    throw error;
  }
}
