/**
 * Where a phone keeps what must survive. A store takes values of the structured clone algorithm, and takes
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
  /** A checkpoint takes the place of everything before, all at once. */
  replace(checkpoint: unknown): Promise<void>;
  /** How much was appended since the last checkpoint, in bytes or what takes about as much. */
  readonly size: number;
  close(): Promise<void>;
}

/** Keeps nothing: a phone without a store is another phone each time. */
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
