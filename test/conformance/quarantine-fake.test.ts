import { fakeOpener } from "./bench.js";
import { describeIsolation } from "./quarantine.js";

for (const deletedMaps of ["let go", "hold on", "come back twice"] as const) {
  describeIsolation(`FakeKernel (deleted maps ${deletedMaps})`, fakeOpener({ deletedMaps }));
}
