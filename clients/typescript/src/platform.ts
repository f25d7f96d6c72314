/** What differs between browsers and Node. */

import type { Store } from "./store.js";

/** A connection that is open; `receive` and `closed` are set before anything can come. */
export interface Wire {
  send(data: Uint8Array): void;
  close(): void;
}

export interface WireEvents {
  receive(data: Uint8Array): void;
  closed(reason: string): void;
}

/** What differs between browsers and Node. */
export interface Platform {
  /** Open a WebSocket to a super peer, and verify its name if possible. */
  dial(url: string, group: string, name: string, events: WireEvents): Promise<Wire>;
  openStore(name: string, sync: boolean): Store;
  token(): string | Promise<string>;
  /** Calls back when a network may be back; returns a function that stops this. */
  watchNetwork?(back: () => void): () => void;
}
