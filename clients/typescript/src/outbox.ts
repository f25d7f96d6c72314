/** Packets for one partner until it has acknowledged them, each with its chain value. */

import { concat, isEqual } from "./bytes.js";
import { ForkError, RemoteError } from "./errors.js";
import { sha256 } from "./sha256.js";

const CHAIN_BYTES = 16;
export const CHAIN_START = new Uint8Array(CHAIN_BYTES);

export const isSkipped = (packet: Uint8Array): boolean => packet[0] === 0xc1;

/** The hash of all packets on a link up to this one. */
export function chain(previous: Uint8Array, packet: Uint8Array): Uint8Array {
  if (isSkipped(packet)) {
    if (packet.length !== 1 + CHAIN_BYTES) throw new RemoteError("a skipped packet without its chain value");
    return packet.slice(1);
  }
  return sha256(concat(previous, sha256(packet))).slice(0, CHAIN_BYTES);
}

export interface OutboxState {
  last: number;
  acked: number;
  ackedChain: Uint8Array;
  packets: Map<number, { data: Uint8Array; chain: Uint8Array }>;
}

export class Outbox {
  constructor(readonly state: OutboxState) {}

  push(data: Uint8Array): void {
    const { state } = this;
    const value = chain(this.chainAt(state.last)!, data);
    state.last += 1;
    state.packets.set(state.last, { data, chain: value });
  }

  /** The chain value of a packet; null of one that was acknowledged before the last acknowledged. */
  chainAt(number: number): Uint8Array | null {
    const { state } = this;
    return number === state.acked ? state.ackedChain : (state.packets.get(number)?.chain ?? null);
  }

  /** The partner has everything up to `number`, with this chain value. */
  ack(number: number, value: Uint8Array): void {
    const { state } = this;
    if (number > state.last)
      throw new ForkError(`it has packet ${number}, and only ${state.last} were sent: this store is an older one`);
    if (number < state.acked) return; // overtaken by a later ack
    const own = this.chainAt(number)!;
    if (!isEqual(own, value))
      throw new ForkError(`its packets up to ${number} are not those that were sent to it`);
    for (let each = state.acked + 1; each <= number; each++) state.packets.delete(each);
    state.acked = number;
    state.ackedChain = own;
  }

  /** The packets after `number` up to `end`, at least one and as many as fit. */
  after(number: number, end: number, maxBytes: number, maxPackets: number): Uint8Array[] {
    const bodies: Uint8Array[] = [];
    let room = maxBytes;
    for (let each = number + 1; each <= Math.min(end, number + maxPackets); each++) {
      const { data } = this.state.packets.get(each)!;
      room -= data.length;
      if (bodies.length && room < 0) break;
      bodies.push(data);
    }
    return bodies;
  }
}
