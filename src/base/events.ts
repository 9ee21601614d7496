/** Kubernetes Events, as far as the rest of the program needs to know of them. */

/** What an Event is about. */
export interface EventSubject {
  readonly kind: "Node" | "Service";
  readonly name: string;
  /** Absent for a Node. */
  readonly namespace?: string;
  readonly uid?: string;
}

/** Field names as in events.k8s.io/v1. */
export interface EventText {
  readonly type: "Normal" | "Warning";
  /** CamelCase, short: "FailedToStartServiceHealthcheck". */
  readonly reason: string;
  /** CamelCase: what was being done: "Listen". */
  readonly action: string;
  /** A sentence for people. */
  readonly note: string;
}

/** Takes Events and delivers them when it can. Never throws, never waits: an Event that cannot be delivered is logged. */
export interface EventRecorder {
  record(subject: EventSubject, event: EventText): void;
}

/** For a proxier without a cluster: Events have nowhere to go. */
export const NO_EVENTS: EventRecorder = Object.freeze({ record: () => undefined });
