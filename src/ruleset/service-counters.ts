/** What the maps of services count: connections of each VIP and node port, also those of each endpoint, or nothing. */
export const SERVICE_COUNTERS = ["service", "endpoint", "off"] as const;
export type ServiceCounters = (typeof SERVICE_COUNTERS)[number];
