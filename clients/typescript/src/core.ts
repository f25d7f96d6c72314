/**
 * A phone and its links, without clock, socket or store.
 *
 * Everything that happens is an event, and the events are the log: replayed in the same order they give the
 * same packets under the same numbers. A driver makes them durable in batches; only after that are packets
 * sent, received ones acknowledged, and messages delivered to the application.
 */

import type { Id } from "./bytes.js";
import { isFor } from "./addressing.js";
import { unwrap, wrap, type AboutAll, type Body } from "./body.js";
import { addressOf, originLabel, type Contact } from "./contact.js";
import { LocalError, RemoteError, StoreError } from "./errors.js";
import type { Life } from "./frames.js";
import { MAX_LIVES } from "./lineage.js";
import { CHAIN_START, chain, isSkipped, Outbox, type OutboxState } from "./outbox.js";
import { decodePacket } from "./packets.js";
import { Phone, type Delivery, type Phase, type PhoneState } from "./phone.js";

export type Event =
  /** A new life begins: the store was opened. */
  | { kind: "opened"; life: string }
  /** This phone is going to ask for a slot, at an address that it has never used. */
  | { kind: "attempt"; nonce: Uint8Array }
  /** A super peer has greeted, for the first time or from another place. */
  | { kind: "link"; mine: Id; contact: Contact }
  /** It has greeted from a life unknown to this phone. */
  | { kind: "met"; link: number; lineage: Life[] }
  | { kind: "asked"; link: number }
  | { kind: "packet"; link: number; number: number; data: Uint8Array }
  /** The application has restored the snapshot that came with the slot. */
  | { kind: "started" }
  | { kind: "broadcast"; payload: Uint8Array; at: number }
  /** The application asks for its next message, and has processed the one before. */
  | { kind: "take" }
  /** The message in flight is redelivered after a restart. */
  | { kind: "again" }
  /** The application has processed the message in flight. */
  | { kind: "ack" }
  /** The phone asks the super peer at the other end of a link for a slot, to move there. */
  | { kind: "move"; link: number }
  /** The super peers at these addresses are out of reach. */
  | { kind: "lost"; addresses: Id[] }
  /** The process at the other end of a link is gone. */
  | { kind: "gone"; link: number }
  | { kind: "leave" };

export interface LinkState {
  mine: Id;
  theirs: Id;
  /** The address at the other end. */
  contact: Contact;
  outbox: OutboxState;
  received: number;
  receivedChain: Uint8Array;
  /** The other's lives, as known here. */
  lineage: Life[];
  isVoid: boolean;
}

/** All that a phone remembers, as plain values. */
export interface CoreState {
  format: 1;
  group: string;
  name: string;
  lineage: Life[];
  broadcasts: number;
  /** The origin of the last message that was broadcast in this slot. */
  lastOrigin: Id | null;
  /** Current and former incarnations of this phone, by address; `current` is the present one. */
  phones: Map<Id, PhoneState>;
  contacts: Map<Id, Contact>;
  current: Id | null;
  links: Map<number, LinkState>;
  nextLink: number;
  /** Undelivered or unacked messages; the first is in flight if it was delivered. */
  unacked: Delivery[];
  attempts: number;
}

/** One batch of events that is written together. */
export interface Batch {
  records: Event[];
  checkpoint: CoreState | null;
  marks: Map<number, Mark>;
}

interface Mark {
  sent: number;
  received: number;
  chain: Uint8Array;
}

export interface GivenMessage {
  delivery: Delivery;
  deliveries: number;
  isOwn: boolean;
}

const FORMAT = 1;

export class Core {
  readonly state: CoreState;
  /** How far each link is durable. */
  private readonly marks = new Map<number, Mark>();
  private readonly outboxes = new Map<number, Outbox>();
  private readonly phones = new Map<Id, Phone>();
  private records: Event[] = [];
  /** Links on which an invalid packet arrived, with the reason. */
  readonly rejected = new Map<number, string>();
  /** Bytes of messages that the application has not consumed. */
  private waitingBytes = 0;
  private isReplaying = false;

  constructor(group: string, name: string, checkpoint?: unknown, records: readonly unknown[] = []) {
    this.state = (checkpoint as CoreState | undefined) ?? emptyState(group, name);
    this.check(group, name);
    for (const [address, state] of this.state.phones) this.phones.set(address, new Phone(state));
    for (const [link, state] of this.state.links) this.outboxes.set(link, new Outbox(state.outbox));
    this.isReplaying = true;
    for (const record of records) this.step(record as Event);
    this.isReplaying = false;
    this.persisted({ records: [], checkpoint: null, marks: this.takeMarks() });
    this.waitingBytes = this.state.unacked.reduce((sum, each) => sum + each.payload.length, 0);
    for (const packet of this.current?.undelivered ?? []) this.waitingBytes += packet.payload.length;
  }

  private check(group: string, name: string): void {
    const { state } = this;
    if (state.format > FORMAT) throw new StoreError("a later version of this client has written the store");
    if (state.group !== group || state.name !== name)
      throw new LocalError(`the store is of ${state.name} in group '${state.group}', not of ${name} in '${group}'`);
  }

  // State

  get current(): Phone | null {
    return this.state.current === null ? null : this.phones.get(this.state.current)!;
  }

  get phase(): Phase {
    return this.current?.state.phase ?? "outside";
  }

  /** Whether messages may be delivered to the application, and broadcast. */
  get isStarted(): boolean {
    return this.current?.isStarted ?? false;
  }

  /** The application's state that came with the slot, if the sponsor had one. */
  get snapshot(): Uint8Array | null {
    const data = this.current?.state.snapshot;
    return data?.length && data[0] === 1 ? data.subarray(1) : null;
  }

  /** The label by which applications know this phone: a new one for each slot. */
  get label(): string {
    const here = this.current?.state.here;
    return here ? originLabel(this.state.name, here.origin) : this.state.name;
  }

  /** The address of its super peer; null if it has none. */
  get hub(): Id | null {
    const { phase } = this;
    return phase === "member" || phase === "leaving" ? (this.current!.state.here?.hub ?? null) : null;
  }

  /** The addresses of the super peers it cannot continue without. */
  get reliedOn(): Set<Id> {
    return this.current?.reliedOn ?? new Set();
  }

  get isMoving(): boolean {
    return this.phase === "member" && !this.current!.isIdle;
  }

  get hasRecords(): boolean {
    return this.records.length > 0;
  }

  get retainedBytes(): number {
    return this.current?.state.retained.reduce((sum, { entry }) => sum + entry.payload.length, 0) ?? 0;
  }

  get undeliveredBytes(): number {
    return this.waitingBytes;
  }

  findLink(mine: Id, theirs: Id): number | null {
    for (const [link, state] of this.state.links) if (state.mine === mine && state.theirs === theirs) return link;
    return null;
  }

  outbox(link: number): Outbox {
    return this.outboxes.get(link)!;
  }

  /** How far a link is durable: what may be sent, and acknowledged. */
  mark(link: number): Mark {
    return this.marks.get(link) ?? { sent: 0, received: 0, chain: CHAIN_START };
  }

  // Events

  step(event: Event): void {
    switch (event.kind) {
      case "opened":
        this.log(event);
        this.state.lineage = [...this.state.lineage, [event.life, this.state.broadcasts] as Life].slice(-MAX_LIVES);
        return;
      case "attempt":
        return this.onAttempt(event.nonce);
      case "link":
        return this.onLink(event.mine, event.contact);
      case "met":
        this.log(event);
        this.link(event.link).lineage = event.lineage;
        this.link(event.link).isVoid = false;
        return;
      case "asked":
        this.log(event);
        this.phones.get(this.link(event.link).mine)!.join(this.link(event.link).theirs);
        break;
      case "packet":
        return this.onPacket(event.link, event.number, event.data);
      case "started":
        this.log(event);
        this.current!.state.snapshot = null;
        return;
      case "broadcast":
        return this.onBroadcast(event.payload, event.at);
      case "take":
        this.log(event);
        this.shift();
        this.pull();
        if (this.state.unacked.length) this.state.attempts = 1;
        return;
      case "again":
        this.log(event);
        this.state.attempts += 1;
        return;
      case "ack":
        this.log(event);
        this.shift();
        return;
      case "move":
        this.current!.move(this.link(event.link).theirs); // which refuses an impossible move
        this.log(event);
        break;
      case "lost":
        if (this.hub === null) throw new LocalError("only a phone that has a slot can give it up");
        this.log(event);
        this.current!.lose(new Set(event.addresses));
        break;
      case "gone":
        this.log(event);
        this.link(event.link).isVoid = true;
        return;
      case "leave":
        this.current!.leave();
        this.log(event);
        break;
    }
    this.carryOut();
  }

  private log(event: Event): void {
    if (!this.isReplaying) this.records.push(event);
  }

  private link(link: number): LinkState {
    return this.state.links.get(link)!;
  }

  private onAttempt(nonce: Uint8Array): void {
    const before = this.current;
    const phase = this.phase;
    if (phase === "member" || phase === "leaving") throw new LocalError("it has a slot, and asks for none");
    this.log({ kind: "attempt", nonce });
    if (phase === "joining") before!.giveUp(new Set());
    const contact = { name: this.state.name, nonce, at: "", isPhone: true };
    const address = addressOf(contact);
    const none = { entries: [], admissions: new Map(), awaited: new Map() };
    const fresh = Phone.outside(address, before?.makeBacklog() ?? none);
    this.phones.set(address, fresh);
    this.state.phones.set(address, fresh.state);
    this.state.contacts.set(address, contact);
    this.state.current = address;
    this.carryOut();
  }

  private onLink(mine: Id, contact: Contact): void {
    const theirs = addressOf(contact);
    if (!this.phones.has(mine)) throw new LocalError("no address of this phone");
    this.log({ kind: "link", mine, contact });
    const known = this.findLink(mine, theirs);
    if (known !== null) {
      this.link(known).contact = contact;
      return;
    }
    const number = this.state.nextLink++;
    const outbox = { last: 0, acked: 0, ackedChain: CHAIN_START, packets: new Map() };
    this.outboxes.set(number, new Outbox(outbox));
    this.state.links.set(number, {
      mine,
      theirs,
      contact,
      outbox,
      received: 0,
      receivedChain: CHAIN_START,
      lineage: [],
      isVoid: false,
    });
  }

  private onPacket(link: number, number: number, data: Uint8Array): void {
    const state = this.state.links.get(link);
    if (!state || number <= state.received) return; // a duplicate
    if (number !== state.received + 1)
      throw new RemoteError(`packet ${number} came after packet ${state.received}`);
    const value = chain(state.receivedChain, data);
    const packet = isSkipped(data) ? null : decodePacket(data);
    this.log({ kind: "packet", link, number, data });
    state.received = number;
    state.receivedChain = value;
    const phone = this.phones.get(state.mine);
    if (packet === null || phone === undefined) return;
    const before = phone.state.phase;
    try {
      phone.receive(state.theirs, packet);
    } catch (error) {
      if (!(error instanceof RemoteError)) throw error;
      this.rejected.set(link, error.message); // in the log as well: a replay does the same
    }
    const ready = phone === this.current ? phone.state.here?.ready : undefined;
    if (packet.kind === "downlink" && ready?.at(-1) === packet) this.waitingBytes += packet.payload.length;
    if (before === "joining" && phone.state.phase === "member") {
      // Earlier deliveries that were not processed are in the snapshot or will be repeated.
      this.state.unacked = [];
      this.state.attempts = 0;
      this.state.lastOrigin = null;
      this.waitingBytes = 0;
    }
    this.carryOut();
  }

  private onBroadcast(payload: Uint8Array, at: number): void {
    if (!this.isStarted) throw new LocalError("only a phone that has a slot can broadcast");
    this.log({ kind: "broadcast", payload, at });
    const message = this.current!.broadcast(payload, at);
    this.state.broadcasts += 1;
    this.state.lastOrigin = message.origin;
    this.state.unacked.push({ ...message, payload });
    this.waitingBytes += payload.length;
    this.carryOut();
  }

  /** Put the packets of all incarnations into outboxes. */
  private carryOut(): void {
    for (const [mine, phone] of this.phones) {
      for (const [to, packet] of phone.outbox.splice(0)) {
        const link = this.findLink(mine, to);
        if (link !== null) this.outbox(link).push(packet);
      }
    }
  }

  private shift(): void {
    if (!this.state.attempts) return;
    this.waitingBytes -= this.state.unacked.shift()!.payload.length;
    this.state.attempts = 0;
  }

  private pull(): void {
    if (this.state.unacked.length) return;
    const delivery = this.current?.deliver();
    if (delivery) this.state.unacked.push(delivery);
  }

  // Calls of the application

  broadcast(body: Body, at: number, about?: AboutAll): Delivery {
    const { name, unacked, lastOrigin } = this.state;
    const follows = lastOrigin !== null && lastOrigin === this.current?.place?.origin;
    this.step({ kind: "broadcast", payload: wrap(body, follows, name, 1000 * at, about), at });
    return unacked[unacked.length - 1];
  }

  /** The next message for the application, which has processed the one before. It may be delivered once all
   * events so far are durable. */
  take(): GivenMessage | null {
    do {
      const { attempts, unacked } = this.state;
      const isHere = this.phase === "member" || this.phase === "leaving" || this.phase === "ended";
      const hasNext = unacked.length > (attempts ? 1 : 0) || this.current?.hasDeliverable;
      if (isHere && hasNext) this.step({ kind: "take" });
      else if (attempts) this.step({ kind: "ack" });
    } while (this.isForOthers);
    return this.inFlight;
  }

  /** Redeliver the message that was in flight before a restart. */
  takeAgain(): GivenMessage | null {
    if (this.isForOthers) return this.take();
    if (this.state.attempts) this.step({ kind: "again" });
    return this.inFlight;
  }

  /** Whether the message in flight is addressed only to others. */
  private get isForOthers(): boolean {
    const given = this.inFlight;
    return given !== null && !given.isOwn && !isFor(given.delivery.payload, [this.label, this.state.name]);
  }

  private get inFlight(): GivenMessage | null {
    const { attempts, unacked, name } = this.state;
    if (!attempts) return null;
    const delivery = unacked[0];
    return { delivery, deliveries: attempts, isOwn: unwrap(delivery.payload).author === name };
  }

  // Persistence

  /** All that happened since the last batch; as a whole state if that `isCheckpoint`. */
  takeBatch(isCheckpoint: boolean, isConnected: (link: number) => boolean): Batch {
    const records = this.records;
    this.records = [];
    if (isCheckpoint) this.prune(isConnected);
    return { records, checkpoint: isCheckpoint ? this.state : null, marks: this.takeMarks() };
  }

  persisted(batch: Batch): void {
    for (const [link, mark] of batch.marks) this.marks.set(link, mark);
  }

  private takeMarks(): Map<number, Mark> {
    return new Map(
      Array.from(this.state.links, ([link, state]) => [
        link,
        { sent: state.outbox.last, received: state.received, chain: state.receivedChain },
      ]),
    );
  }

  /** Former addresses are forgotten once all packets sent from them are acknowledged. */
  private prune(isConnected: (link: number) => boolean): void {
    const { state } = this;
    const used = new Set([state.current]);
    for (const [link, each] of state.links)
      if (each.outbox.packets.size || isConnected(link)) used.add(each.mine);
    for (const [link, each] of state.links) {
      if (used.has(each.mine)) continue;
      state.links.delete(link);
      this.outboxes.delete(link);
      this.marks.delete(link);
    }
    for (const address of [...state.phones.keys()]) {
      if (used.has(address)) continue;
      state.phones.delete(address);
      state.contacts.delete(address);
      this.phones.delete(address);
    }
  }
}

function emptyState(group: string, name: string): CoreState {
  return {
    format: FORMAT,
    group,
    name,
    lineage: [],
    broadcasts: 0,
    lastOrigin: null,
    phones: new Map(),
    contacts: new Map(),
    current: null,
    links: new Map(),
    nextLink: 0,
    unacked: [],
    attempts: 0,
  };
}
