import { fakeOpener } from "../support/kernel-world.ts";
import { describeIsolation } from "./quarantine.js";

for (const deletedMaps of ["let go", "hold on", "come back twice"] as const) {
  describeIsolation(`FakeKernel (deleted maps ${deletedMaps})`, fakeOpener({ deletedMaps }));
}
