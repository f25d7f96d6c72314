/** The caller has made a mistake, or requests something impossible in the current state. */
export class LocalError extends Error {
  override name = "LocalError";
}

/** A super peer has sent something invalid. */
export class RemoteError extends Error {
  override name = "RemoteError";
}

/** The two ends of a link remember different things: the store is an older copy, or there are two of it. */
export class ForkError extends RemoteError {
  override name = "ForkError";
}

/** The store cannot be read or written, or another tab or process has opened it. */
export class StoreError extends Error {
  override name = "StoreError";
}
