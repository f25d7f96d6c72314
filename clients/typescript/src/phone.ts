/**
 * The protocol of a phone in a group whose members come and go, without links, clock or store.
 *
 * A phone has a *slot* at its super peer. The super peer numbers all messages of the group from 1, and sends
 * each with what it depends on already sent before, so nothing is held here. Until a message is known to be
 * stable the phone retains it: should the super peer be gone, the phone brings it to another one.
 */

import type { Id } from "./bytes.js";
import { authorId } from "./contact.js";
import { LocalError, RemoteError } from "./errors.js";
import {
  encodeAck,
  encodeJoin,
  encodeLeave,
  encodeUplink,
  type Backlog,
  type BacklogEntry,
  type Downlink,
  type FromSuperPeer,
  type MessageKey,
  type Welcome,
} from "./packets.js";

/** Before it asks for a slot, until it has one, with it, leaving it, without it, and for good. */
export type Phase = "outside" | "joining" | "member" | "leaving" | "removed" | "ended";

/** Deliveries after which a silent phone reports its progress. */
const ACK_EVERY = 8;
const MAX_AHEAD = 1_000_000;

/** A place at a super peer, and what is numbered there. */
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

/** A message that this phone has sent or received, and does not know to be stable. */
export interface Retained {
  entry: BacklogEntry;
  /** At its super peer; 0 if it is not known yet. */
  number: number;
  /** When it was broadcast here, in milliseconds since 1970; 0 if it was not. */
  at: number;
}

/** Plain values only: a store keeps them. */
export interface PhoneState {
  /** Its address. */
  me: Id;
  phase: Phase;
  /** The super peer that was asked for a slot. */
  contact: Id | null;
  here: Slot | null;
  retained: Retained[];
  /** What it brought from its former life. */
  brought: Backlog;
  last: number;
  /** The application's state that came with the slot, until the application has taken it. */
  snapshot: Uint8Array | null;
}

export interface Delivery extends MessageKey {
  payload: Uint8Array;
}

export class Phone {
  /** What is to be sent, and to which address. */
  outbox: [to: Id, packet: Uint8Array][] = [];

  constructor(readonly state: PhoneState) {}

  static outside(me: Id, brought: Backlog): Phone {
    return new Phone({
      me,
      phase: "outside",
      contact: null,
      here: null,
      retained: [],
      brought,
      last: 0,
      snapshot: null,
    });
  }

  get isStarted(): boolean {
    return this.state.phase === "member" && this.state.snapshot === null;
  }

  /** Ask the super peer at an address for a slot. */
  join(hub: Id): void {
    const { state } = this;
    if (state.phase !== "outside") throw new LocalError("only a phone outside the group can join it");
    state.phase = "joining";
    state.contact = hub;
    this.send(hub, encodeJoin(state.brought));
  }

  leave(): void {
    const here = this.member();
    this.send(here.hub, encodeLeave(here.sent));
    this.state.phase = "leaving";
  }

  /** Its super peer is gone, or the answer comes too late: it can only return. Should they be there after
   * all, they retire the slot. */
  giveUp(): void {
    const { here, contact, phase } = this.state;
    if (here !== null) this.send(here.hub, encodeLeave(here.sent));
    else if (phase === "joining" && contact !== null) this.send(contact, encodeLeave(0));
    this.state.phase = "removed";
  }

  broadcast(payload: Uint8Array, at: number): MessageKey {
    const here = this.member();
    here.sent += 1;
    const message = { origin: here.origin, seq: here.sent };
    this.send(here.hub, encodeUplink(payload, here.origin, here.sent, here.causes, here.base));
    here.causes.clear();
    here.unreported = 0;
    const entry = { original: message, payload, author: [here.stream, here.slot] as [Id, Id], isLost: false };
    this.state.retained.push({ entry, number: 0, at });
    return message;
  }

  deliver(): Delivery | null {
    const here = this.isStarted ? this.state.here : null;
    const packet = here?.ready.shift();
    if (!here || !packet) return null;
    here.undelivered.delete(packet.number);
    deliverNumber(here, packet.number);
    for (const number of packet.causes) here.causes.delete(number);
    here.causes.delete(packet.senderPrevious);
    here.causes.add(packet.number);
    here.unreported += 1;
    return { origin: packet.origin, seq: packet.seq, payload: packet.payload };
  }

  /** What the next life of this phone is to bring back, in the order in which it was received. */
  makeBacklog(): Backlog {
    const { brought, retained, here, last } = this.state;
    const found = new Map<string, BacklogEntry>();
    for (const entry of [...brought.entries, ...retained.map((each) => each.entry)])
      found.set(`${entry.original.origin}:${entry.original.seq}`, entry);
    const awaited = new Map(brought.awaited);
    if (here !== null) awaited.set(here.stream, Math.max(last, awaited.get(here.stream) ?? 0));
    return { entries: [...found.values()], admissions: new Map(brought.admissions), awaited };
  }

  receive(from: Id, packet: FromSuperPeer): void {
    const { state } = this;
    if (packet.kind === "welcome") return this.onWelcome(from, packet);
    if (packet.kind === "refused") return this.onRefused(from, packet.accepted);
    const here = state.here;
    if (here === null || state.phase !== "member" || from !== here.hub || packet.kind === "ignored") return;
    if (packet.kind === "stable") {
      state.last = packet.last;
      state.retained = state.retained.filter((each) => each.number <= 0 || each.number > packet.number);
      return;
    }
    if (packet.kind === "assignment") this.onAssignment(here, packet.seq, packet.number);
    else if (!this.accept(here, packet)) return;
    if (here.unreported >= ACK_EVERY) {
      here.unreported = 0;
      this.send(here.hub, encodeAck(here.sent, here.base, here.causes));
    }
  }

  private onWelcome(from: Id, welcome: Welcome): void {
    const { state } = this;
    if (state.phase !== "joining" || from !== state.contact || welcome.snapshot === null) return;
    state.phase = "member";
    state.snapshot = welcome.snapshot;
    state.here = {
      hub: from,
      stream: welcome.stream,
      slot: welcome.slot,
      origin: authorId(welcome.stream, welcome.slot),
      sent: welcome.sent,
      base: welcome.number,
      above: new Set(),
      causes: new Set(),
      ready: [],
      undelivered: new Set(),
      unreported: 0,
    };
    state.last = welcome.last;
    this.learn(welcome.admissions);
    state.retained = welcome.unstable.map(([number, entry]) => ({ entry, number, at: 0 }));
  }

  private onRefused(from: Id, accepted: number | null): void {
    const { state } = this;
    const here = state.here;
    if (state.phase === "joining" && from === state.contact) state.phase = "removed";
    else if (here === null || from !== here.hub) return;
    else if (state.phase === "leaving" && accepted === here.sent) state.phase = "ended";
    else if (state.phase === "member" || state.phase === "leaving") {
      if (accepted !== null) this.markUnaccepted(here, accepted);
      state.phase = "removed";
    }
  }

  /** What its super peer has not accepted, nobody else has. */
  private markUnaccepted(here: Slot, accepted: number): void {
    for (const { entry } of this.state.retained) {
      const isOwn = entry.author?.[0] === here.stream && entry.author[1] === here.slot;
      if (isOwn && entry.original.seq > accepted) entry.isLost = true;
    }
  }

  private onAssignment(here: Slot, seq: number, number: number): void {
    if (seq < 1 || seq > here.sent) throw new RemoteError("a number for a message that was not sent");
    checkNumber(here, number);
    for (const each of this.state.retained) {
      const { author, original } = each.entry;
      if (author?.[0] === here.stream && author[1] === here.slot && original.seq === seq) each.number = number;
    }
    deliverNumber(here, number);
  }

  /** Take a message of somebody else; false if it is a copy of one that this phone has. */
  private accept(here: Slot, packet: Downlink): boolean {
    const { number } = packet;
    checkNumber(here, number);
    if (packet.origin === here.origin || packet.seq < 1)
      throw new RemoteError("it sends a message in this phone's name");
    if (Math.max(packet.senderPrevious, packet.causes.at(-1) ?? 0) >= number)
      throw new RemoteError(`message ${number} depends on a later one`);
    if (packet.isAgain && this.has(packet)) {
      deliverNumber(here, number);
      return false;
    }
    if (number <= here.base || here.above.has(number) || here.undelivered.has(number)) return true;
    const entry = {
      original: { origin: packet.origin, seq: packet.seq },
      payload: packet.payload,
      author: [packet.stream, packet.slot] as [Id, Id],
      isLost: packet.isAgain,
    };
    this.state.retained.push({ entry, number, at: 0 });
    this.learn(packet.admissions);
    here.ready.push(packet);
    here.undelivered.add(number);
    return true;
  }

  /** Whether it has a message that was broadcast again, from its former super peer. */
  private has(message: MessageKey): boolean {
    return this.state.retained.some(
      ({ entry }) => entry.original.origin === message.origin && entry.original.seq === message.seq,
    );
  }

  private learn(admissions: Map<Id, MessageKey>): void {
    for (const [stream, key] of admissions) this.state.brought.admissions.set(stream, key);
  }

  private member(): Slot {
    if (this.state.phase !== "member" || this.state.here === null)
      throw new LocalError("only a phone that has a slot can do that");
    return this.state.here;
  }

  private send(to: Id, packet: Uint8Array): void {
    this.outbox.push([to, packet]);
  }
}

function checkNumber(here: Slot, number: number): void {
  if (number < 1 || number > here.base + MAX_AHEAD)
    throw new RemoteError(`number ${number} of the super peer is out of range`);
}

function deliverNumber(here: Slot, number: number): void {
  if (number > here.base) here.above.add(number);
  while (here.above.delete(here.base + 1)) here.base += 1;
}
