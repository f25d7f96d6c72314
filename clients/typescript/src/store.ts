/**
 * The durable state of a phone. A store takes values of the structured clone algorithm, and takes
 * them before `append` or `replace` returns its promise: the caller changes them afterwards.
 */

export interface Stored {
  /** The last checkpoint; undefined if there is none. */
  checkpoint: unknown;
  /** What was appended since, in order. */
  records: unknown[];
}

export interface Store {
  open(): Promise<Stored>;
  /** Durable when the promise is fulfilled. */
  append(records: readonly unknown[]): Promise<void>;
  /** Replace everything before by a checkpoint, atomically. */
  replace(checkpoint: unknown): Promise<void>;
  /** How much was appended since the last checkpoint, approximately in bytes. */
  readonly size: number;
  close(): Promise<void>;
}

/** Keeps nothing: a phone without a store is a new phone at each start. */
export class NoStore implements Store {
  readonly size = 0;

  open(): Promise<Stored> {
    return Promise.resolve({ checkpoint: undefined, records: [] });
  }

  append(): Promise<void> {
    return Promise.resolve();
  }

  replace(): Promise<void> {
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
