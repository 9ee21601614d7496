/** Beside setup.ts, which loads what reads configurations: a command that asks the kernel needs none of it. */
import { KernelError } from "../netlink/errors.js";
import { NftKernel } from "../netlink/nft-kernel.js";
import { UserError } from "./stdio.js";

/** The kernel of this network namespace. Throws a UserError that says what is missing: rights, nf_tables, the addon. */
export async function openKernel(): Promise<NftKernel> {
  try {
    return await NftKernel.open();
  } catch (error) {
    if (error instanceof KernelError) throw new UserError(error.message, { cause: error });
    throw error;
  }
}
