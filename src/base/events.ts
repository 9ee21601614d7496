/** The part of Kubernetes Events that the rest of the program uses. */

/** The object that an Event is about. */
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
  /** The attempted action, in CamelCase: "Listen". */
  readonly action: string;
  /** A sentence for people. */
  readonly note: string;
}

/** Takes Events and delivers them when it can. It never throws and never waits. It logs an Event that cannot be delivered. */
export interface EventRecorder {
  record(subject: EventSubject, event: EventText): void;
}

/** For a proxier without a cluster, where nothing can receive Events. */
export const NO_EVENTS: EventRecorder = Object.freeze({ record: () => undefined });
