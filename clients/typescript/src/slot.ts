/** A phone's slot at a super peer, and the numbers used there. */

import type { Id } from "./bytes.js";
import { authorId } from "./contact.js";
import { RemoteError } from "./errors.js";
import { encodeUplink, type Downlink } from "./packets.js";

const MAX_AHEAD = 1_000_000;

/** Plain values only: a store keeps them. */
export interface Slot {
  /** The super peer's address. */
  hub: Id;
  stream: Id;
  slot: Id;
  /** The origin of this phone's messages. */
  origin: Id;
  sent: number;
  /** All numbers up to `base` are delivered, and those in `above`. */
  base: number;
  above: Set<number>;
  /** The numbers that the next message depends on immediately. */
  causes: Set<number>;
  ready: Downlink[];
  /** The numbers of those. */
  undelivered: Set<number>;
  /** Deliveries since the last report to the super peer. */
  unreported: number;
}

/** A message of this phone, before it is sent. */
export interface Uplink {
  payload: Uint8Array;
  origin: Id;
  seq: number;
  causes: number[];
}

export function createSlot(hub: Id, stream: Id, slot: Id, sent: number): Slot {
  return {
    hub,
    stream,
    slot,
    origin: authorId(stream, slot),
    sent,
    base: 0,
    above: new Set(),
    causes: new Set(),
    ready: [],
    undelivered: new Set(),
    unreported: 0,
  };
}

export function createMessage(slot: Slot, payload: Uint8Array): Uplink {
  slot.sent += 1;
  slot.unreported = 0;
  const causes = [...slot.causes];
  slot.causes.clear();
  return { payload, origin: slot.origin, seq: slot.sent, causes };
}

export const encodeMessage = (slot: Slot, { payload, origin, seq, causes }: Uplink): Uint8Array =>
  encodeUplink(payload, origin, seq, causes, slot.base);

/** Whether a message was broadcast in this slot: messages name it as `[stream, slot]`. */
export const isOf = (slot: Slot, author: [Id, Id] | null): boolean =>
  author !== null && author[0] === slot.stream && author[1] === slot.slot;

export function checkNumber(slot: Slot, number: number): void {
  if (number < 1 || number > slot.base + MAX_AHEAD)
    throw new RemoteError(`number ${number} of the super peer is out of range`);
}

export function checkDownlink(slot: Slot, packet: Downlink): void {
  const { number } = packet;
  checkNumber(slot, number);
  if (packet.origin === slot.origin || packet.seq < 1)
    throw new RemoteError("it sends a message in this phone's name");
  if (Math.max(packet.senderPrevious, packet.causes.at(-1) ?? 0) >= number)
    throw new RemoteError(`message ${number} depends on a later one`);
}

export const isKnown = (slot: Slot, number: number): boolean =>
  number <= slot.base || slot.above.has(number) || slot.undelivered.has(number);

/** The next message for the application: its number is delivered, and the next message depends on it. */
export function deliverFrom(slot: Slot): Downlink | undefined {
  const packet = slot.ready.shift();
  if (packet === undefined) return undefined;
  slot.undelivered.delete(packet.number);
  deliverNumber(slot, packet.number);
  for (const number of packet.causes) slot.causes.delete(number);
  slot.causes.delete(packet.senderPrevious);
  slot.causes.add(packet.number);
  slot.unreported += 1;
  return packet;
}

export function deliverNumber(slot: Slot, number: number): void {
  if (number > slot.base) slot.above.add(number);
  while (slot.above.delete(slot.base + 1)) slot.base += 1;
}
