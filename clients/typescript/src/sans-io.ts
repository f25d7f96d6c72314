/** The parts without I/O, for other platforms and for tests. They are not a stable API. */

export { unwrap, wrap, decodeBody } from "./body.js";
export { Connection } from "./connection.js";
export { addressOf, authorId, readContact } from "./contact.js";
export { Core } from "./core.js";
export { Failover } from "./failover.js";
export { decodeFrame, encodeFrame } from "./frames.js";
export { joinGroup } from "./group.js";
export { decode, encode } from "./msgpack.js";
export { chain } from "./outbox.js";
export { decodePacket, readBits, writeBits } from "./packets.js";
export type { Platform, Wire, WireEvents } from "./platform.js";
export { Phone } from "./phone.js";
export { sha256 } from "./sha256.js";
