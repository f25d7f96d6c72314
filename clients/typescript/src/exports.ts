/** What is public on every platform. */

export type { About, Body, Json } from "./body.js";
export { ForkError, LocalError, RemoteError, StoreError } from "./errors.js";
export { Group } from "./group.js";
export { RequestError } from "./requests.js";
export { Message, MessageId, type Change, type WaitingMessage } from "./message.js";
export type { JoinOptions } from "./settings.js";
export type { Store, Stored } from "./store.js";
