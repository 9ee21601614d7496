/** Connections that the maps of services count: of each VIP and node port, also of each endpoint, or none. */
export const SERVICE_COUNTERS = ["service", "endpoint", "off"] as const;
export type ServiceCounters = (typeof SERVICE_COUNTERS)[number];
