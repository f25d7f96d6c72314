/**
 * The protocol of a phone in a group with changing membership, without links, clock or store.
 *
 * A phone has a *slot* at its super peer. The super peer numbers all messages of the group from 1, and sends
 * each after its causes, so nothing is held here. The phone retains a message until it is known to be
 * stable: if the super peer is gone, the phone brings it back to another one.
 *
 * It moves to another super peer without a snapshot. From some moment on, the new one retains for it all its
 * deliveries. The old one releases it after delivering everything the new one had at that moment, and reports
 * how much the phone then has. The new one sends the rest. Broadcasts made meanwhile wait until then.
 */

import type { Id } from "./bytes.js";
import { LocalError, RemoteError } from "./errors.js";
import {
  encodeAck,
  encodeArrival,
  encodeJoin,
  encodeLeave,
  encodeMove,
  encodeRelease,
  type Backlog,
  type BacklogEntry,
  type Downlink,
  type FromSuperPeer,
  type MessageKey,
  type MoveReady,
  type Welcome,
} from "./packets.js";
import * as slots from "./slot.js";
import { createSlot, isOf, type Slot, type Uplink } from "./slot.js";

/** The phases: before asking for a slot, until it has one, with it, leaving it, without it, and ended. */
export type Phase = "outside" | "joining" | "member" | "leaving" | "removed" | "ended";

/** Deliveries after which a silent phone reports its progress. */
const ACK_EVERY = 8;

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
  /** The super peer that was asked for a slot last. */
  contact: Id | null;
  here: Slot | null;
  /** During a move, the slot at the new super peer. */
  coming: Slot | null;
  isReleased: boolean;
  /** Whether, in order to return, it asks its super peer which of its messages were accepted. */
  isGivingUp: boolean;
  /** Messages received before a move, which are delivered first. */
  before: Downlink[];
  /** Messages broadcast during a move. */
  queue: Uplink[];
  /** Super peers whose requested slot was declined again; until they answer. */
  quitting: Set<Id>;
  retained: Retained[];
  /** The messages it brought back from its former incarnation. */
  brought: Backlog;
  last: number;
  /** The application's state that came with the slot, until the application has taken it. */
  snapshot: Uint8Array | null;
}

export interface Delivery extends MessageKey {
  payload: Uint8Array;
}

export class Phone {
  /** The packets to send, with their addresses. */
  outbox: [to: Id, packet: Uint8Array][] = [];

  constructor(readonly state: PhoneState) {}

  static outside(me: Id, brought: Backlog): Phone {
    return new Phone({
      me,
      phase: "outside",
      contact: null,
      here: null,
      coming: null,
      isReleased: false,
      isGivingUp: false,
      before: [],
      queue: [],
      quitting: new Set(),
      retained: [],
      brought,
      last: 0,
      snapshot: null,
    });
  }

  // State

  get isStarted(): boolean {
    return this.state.phase === "member" && this.state.snapshot === null;
  }

  /** Where the next message is numbered. */
  get place(): Slot | null {
    return this.state.coming ?? this.state.here;
  }

  get hasDeliverable(): boolean {
    return this.isStarted && this.undelivered.length > 0;
  }

  /** Received messages not yet delivered to the application. */
  get undelivered(): Downlink[] {
    return [...this.state.before, ...(this.state.here?.ready ?? [])];
  }

  /** The addresses of the super peers it cannot continue without. */
  get reliedOn(): Set<Id> {
    const { phase, here, coming, contact } = this.state;
    if (phase === "joining") return new Set(contact === null ? [] : [contact]);
    if (here === null || (phase !== "member" && phase !== "leaving")) return new Set();
    const moving = phase === "member" ? [coming?.hub, contact] : [];
    return new Set([here.hub, ...moving.filter((each) => each != null)]);
  }

  mayMove(hub: Id): boolean {
    return this.isIdle && hub !== this.state.contact && !this.state.quitting.has(hub);
  }

  /** Whether it has a slot, and asks for no other one. */
  get isIdle(): boolean {
    const { phase, here, coming, contact, isGivingUp } = this.state;
    return phase === "member" && here !== null && coming === null && contact === here.hub && !isGivingUp;
  }

  // Calls of the application and its driver

  /** Ask the super peer at an address for a slot. */
  join(hub: Id): void {
    const { state } = this;
    if (state.phase !== "outside") throw new LocalError("only a phone outside the group can join it");
    state.phase = "joining";
    state.contact = hub;
    this.send(hub, encodeJoin(state.brought));
  }

  /** Ask another super peer for a slot. The phone stays where it is until that is there. */
  move(hub: Id): void {
    if (!this.mayMove(hub)) throw new LocalError("a phone moves from its super peer to another, once at a time");
    this.state.contact = hub;
    this.send(hub, encodeMove());
  }

  leave(): void {
    const { here } = this.state;
    if (here === null || !this.isIdle) throw new LocalError("only a phone that has a slot and does not move can leave");
    this.send(here.hub, encodeLeave(here.sent));
    this.state.phase = "leaving";
  }

  /** Super peers at these addresses are out of reach. Should they come back after all, they accept what was
   * sent before, and retire the slot. */
  lose(gone: Set<Id>): void {
    const { here, coming, contact } = this.state;
    if (coming === null && contact !== null && gone.has(contact) && here !== null && contact !== here.hub) {
      this.state.quitting.add(contact);
      this.send(contact, encodeLeave(0));
    }
    this.giveUp(gone);
    const left = [coming, this.state.phase === "removed" ? here : null];
    for (const slot of left) if (slot !== null && gone.has(slot.hub)) this.send(slot.hub, encodeLeave(slot.sent));
  }

  /** Super peers at these addresses are gone. If the phone relies on one, it can only return. It first asks
   * the others what they have accepted of it. */
  giveUp(gone: Set<Id>): void {
    const { state } = this;
    const { here, coming, contact, phase } = state;
    const isHere = here !== null && !gone.has(here.hub) && phase === "member";
    if (coming === null && isHere) {
      state.contact = here.hub; // it stays where it is
      return;
    }
    if (coming !== null) {
      if (!gone.has(coming.hub)) this.send(coming.hub, encodeLeave(coming.sent));
    } else if (contact !== null && !gone.has(contact) && contact !== here?.hub) this.send(contact, encodeLeave(0));
    if (isHere) {
      state.isGivingUp = true;
      this.send(here.hub, encodeLeave(here.sent));
    } else this.end();
  }

  private end(): void {
    const { state } = this;
    // Messages waiting for the end of a move were not sent to anyone.
    for (const { origin, seq } of state.queue.splice(0)) this.find(origin, seq)!.entry.isLost = true;
    state.phase = "removed";
  }

  broadcast(payload: Uint8Array, at: number): MessageKey {
    const { state, place } = this;
    if (state.phase !== "member" || place === null) throw new LocalError("only a phone that has a slot can broadcast");
    const packet = slots.createMessage(place, payload);
    const message = { origin: packet.origin, seq: packet.seq };
    if (state.coming === null) this.send(place.hub, slots.encodeMessage(place, packet));
    else state.queue.push(packet);
    const author: [Id, Id] = [place.stream, place.slot];
    state.retained.push({ entry: { original: message, payload, author, isLost: false }, number: 0, at });
    return message;
  }

  deliver(): Delivery | null {
    const { before, here } = this.state;
    if (!this.isStarted || here === null) return null;
    const packet = before.shift() ?? slots.deliverFrom(here);
    return packet ? { origin: packet.origin, seq: packet.seq, payload: packet.payload } : null;
  }

  /** The messages the next incarnation of this phone must bring back, in order of reception. */
  makeBacklog(): Backlog {
    const { brought, retained, here, last } = this.state;
    const found = new Map<string, BacklogEntry>();
    for (const entry of [...brought.entries, ...retained.map((each) => each.entry)])
      found.set(`${entry.original.origin}:${entry.original.seq}`, entry);
    const awaited = new Map(brought.awaited);
    if (here !== null) awaited.set(here.stream, Math.max(last, awaited.get(here.stream) ?? 0));
    return { entries: [...found.values()], admissions: new Map(brought.admissions), awaited };
  }

  // Receiving

  receive(from: Id, packet: FromSuperPeer): void {
    const { state } = this;
    if (packet.kind === "welcome") return state.coming === null ? this.onWelcome(from, packet) : this.onArrival(from, packet);
    if (packet.kind === "ready") return this.onMoveReady(from, packet);
    if (packet.kind === "refused") return this.onRefused(from, packet.accepted);
    const here = state.here;
    if (here === null || state.phase !== "member" || from !== here.hub) return; // it has left that super peer
    if (packet.kind === "released") {
      if (state.coming === null || state.isReleased || state.isGivingUp) return;
      state.isReleased = true;
      this.settle();
      this.send(state.coming.hub, encodeArrival(packet.counts, packet.done));
      return;
    }
    if (packet.kind === "stable") {
      state.last = packet.last;
      if (packet.number > 0) this.settle();
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

  /** A slot, and the application's state. */
  private onWelcome(from: Id, welcome: Welcome): void {
    const { state } = this;
    if (state.phase !== "joining" || from !== state.contact || welcome.snapshot === null) return;
    state.phase = "member";
    state.snapshot = welcome.snapshot;
    state.here = createSlot(from, welcome.stream, welcome.slot, welcome.sent);
    state.here.base = welcome.number;
    state.last = welcome.last;
    this.learn(welcome.admissions);
    state.retained = welcome.unstable.map(([number, entry]) => ({ entry, number, at: 0 }));
  }

  /** A slot is reserved for a move. */
  private onMoveReady(from: Id, ready: MoveReady): void {
    const { state } = this;
    const { here } = state;
    const isAsked = from === state.contact && from !== here?.hub && !state.quitting.has(from);
    if (here === null || state.phase !== "member" || state.isGivingUp || state.coming !== null || !isAsked) return;
    state.coming = createSlot(from, ready.stream, ready.slot, ready.sent);
    this.learn(ready.admissions);
    this.send(here.hub, encodeRelease(ready.counts));
  }

  /** The end of a move: the new super peer has all that this phone was released with, and sends the rest. */
  private onArrival(from: Id, welcome: Welcome): void {
    const { state } = this;
    const { here, coming } = state;
    if (here === null || coming === null || from !== coming.hub || !state.isReleased || state.isGivingUp) return;
    state.before.push(...here.ready);
    coming.base = welcome.number;
    for (const number of welcome.skipped) slots.deliverNumber(coming, number);
    // Not by slot: it may have been another phone's, of which this one has messages.
    const queued = new Set(state.queue.map(({ origin, seq }) => this.find(origin, seq)));
    for (const each of state.retained) each.number = queued.has(each) ? 0 : welcome.current;
    state.here = coming;
    state.coming = null;
    state.isReleased = false;
    state.last = welcome.last; // it has all that the former one had
    for (const packet of state.queue.splice(0)) this.send(from, slots.encodeMessage(coming, packet));
  }

  private onRefused(from: Id, accepted: number | null): void {
    const { state } = this;
    const { here, coming, phase } = state;
    if (state.quitting.delete(from)) return;
    if (phase === "joining" && from === state.contact) state.phase = "removed";
    else if (here === null) return;
    else if (phase === "leaving" && accepted === here.sent && from === here.hub) state.phase = "ended";
    else if (phase !== "member" && phase !== "leaving") return;
    else if (from === here.hub) {
      if (accepted !== null) this.markUnaccepted(here, accepted);
      if (!state.isGivingUp) this.giveUp(new Set([from]));
      this.end();
    } else if (from === coming?.hub) {
      if (!state.isGivingUp) this.giveUp(new Set([from]));
    } else if (from === state.contact) state.contact = here.hub; // it stays where it is
  }

  /** Messages its super peer has not accepted are lost elsewhere, too. */
  private markUnaccepted(here: Slot, accepted: number): void {
    for (const { entry } of this.state.retained)
      if (isOf(here, entry.author) && entry.original.seq > accepted) entry.isLost = true;
  }

  private onAssignment(here: Slot, seq: number, number: number): void {
    if (seq < 1 || seq > here.sent) throw new RemoteError("a number for a message that was not sent");
    slots.checkNumber(here, number);
    for (const each of this.state.retained)
      if (isOf(here, each.entry.author) && each.entry.original.seq === seq) each.number = number;
    slots.deliverNumber(here, number);
    this.settle();
  }

  /** The super peer has accepted a message of this phone, has released it, or has reported stability: so all
   *  messages that the phone brought back are dealt with there. They are stable, or the phone retains them again,
   *  from its snapshot or as resent to it. Those have numbers of this super peer, which give the order in which
   *  to bring them back; own messages without a number follow. */
  private settle(): void {
    const { brought, retained } = this.state;
    if (brought.entries.length === 0) return;
    brought.entries = [];
    const place = ({ number }: Retained): number => number || Number.MAX_SAFE_INTEGER;
    retained.sort((one, other) => place(one) - place(other));
  }

  /** Accept a message of another process; false if this phone already has it. */
  private accept(here: Slot, packet: Downlink): boolean {
    const { number, origin, seq, payload, isAgain } = packet;
    slots.checkDownlink(here, packet);
    if (isAgain && this.find(origin, seq) !== undefined) {
      slots.deliverNumber(here, number);
      return false;
    }
    if (slots.isKnown(here, number)) return true;
    const author: [Id, Id] = [packet.stream, packet.slot];
    const entry = { original: { origin, seq }, payload, author, isLost: isAgain };
    this.state.retained.push({ entry, number, at: 0 });
    this.learn(packet.admissions);
    here.ready.push(packet);
    here.undelivered.add(number);
    return true;
  }

  /** The retained message with this id, if there is one. */
  private find(origin: Id, seq: number): Retained | undefined {
    return this.state.retained.find(
      ({ entry: { original } }) => original.origin === origin && original.seq === seq,
    );
  }

  private learn(admissions: Map<Id, MessageKey>): void {
    for (const [stream, key] of admissions) this.state.brought.admissions.set(stream, key);
  }

  private send(to: Id, packet: Uint8Array): void {
    this.outbox.push([to, packet]);
  }
}
