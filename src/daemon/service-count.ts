import { MANY_SERVICES, setUpForManyServices } from "../base/runtime.js";
import type { Proxier } from "../proxier/proxier.js";
import type { ObjectSink } from "../objects/object-sink.js";

/**
 * Passes everything on to the proxier, and configures V8 for many services once there are many. Each port of a service
 * counts, because it is as much work as a service.
 */
export function watchingSize(proxier: Proxier, setUpForMany = setUpForManyServices): Required<ObjectSink> {
  let many = false;
  return {
    upsert(object) {
      proxier.upsert(object);
      if (many) return;
      const ports = object.kind === "Service" ? (object.record?.ports.length ?? 0) : 0;
      if (Math.max(ports, proxier.model.size) <= MANY_SERVICES) return;
      many = true;
      setUpForMany();
    },
    remove: (kind, name) => proxier.remove(kind, name),
    synced: (pending) => proxier.synced(pending),
    listed: (kind) => proxier.listed(kind),
    flush: () => proxier.flush(),
  };
}
