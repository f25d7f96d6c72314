/**
 * One connection to a super peer, without I/O: greetings, then which frames to send and what arriving frames
 * mean. A link outlives its connections: a new one resumes where the receiver was. Times are milliseconds of
 * a monotonic clock.
 */

import { isEqual, type Id } from "./bytes.js";
import { addressOf, contactLabel } from "./contact.js";
import type { Core } from "./core.js";
import { ForkError, RemoteError } from "./errors.js";
import { decodeFrame, encodeFrame, type Frame, type Greeting } from "./frames.js";
import { isEarlier, isForked, isSameLineage, MAX_LIVES } from "./lineage.js";
import { CHAIN_START } from "./outbox.js";

export const VERSIONS = [2];
const PROTOCOL = "freescale";
const HEARTBEAT = 1_000;
const SILENCE = 4_000;
/** The least time between two acks: with one for each message a super peer would be busy with them. */
const ACK_PAUSE = 500;
/** Packets that are not acknowledged for this long are sent again. */
const RESEND = 2_000;
const FRAME_BYTES = 1 << 16;
const FRAME_PACKETS = 4_096;
/** Bytes waiting for the application, above which no more packets are accepted. */
const MAX_WAITING = 1 << 23;

/** A greeting that was overtaken or refers to a forgotten link: the next call will clarify. */
export class StaleError extends RemoteError {
  override name = "StaleError";
}

/** The process at the other end of the link is gone. */
export class GoneError extends RemoteError {
  override name = "GoneError";
}

let attempts = 0;

export class Connection {
  /** The link, once both have greeted. */
  link: number | null = null;
  /** The names of all connected processes, as reported by the super peer. */
  present = new Set<string>();
  openedAt = 0;
  private sent = 0;
  private ackedBefore = 0;
  private movedAt = 0;
  private ackSent = 0;
  private ackSentAt = -Infinity;
  private resendAfter: number | null = null;
  private lacks = false;
  private isPaused = false;
  private isFull = false;
  private control: Frame[] = [];
  private sentAt = 0;
  private heardAt = 0;
  private called: Greeting | null = null;

  /** Of the phone's address `mine` with the super peer `name`; on a known link, or with whatever incarnation
   * answers. */
  constructor(
    private readonly core: Core,
    readonly name: string,
    readonly mine: Id,
    readonly calledLink: number | null,
  ) {}

  get isOpen(): boolean {
    return this.link !== null;
  }

  /** The greeting. */
  greet(token: string): Uint8Array {
    const { core } = this;
    const link = this.calledLink === null ? null : core.state.links.get(this.calledLink)!;
    const mark = this.calledLink === null ? null : core.mark(this.calledLink);
    this.called = {
      kind: "greeting",
      versions: VERSIONS,
      group: core.state.group,
      protocol: PROTOCOL,
      contact: core.state.contacts.get(this.mine)!,
      you: link?.theirs ?? 0n,
      lineage: core.state.lineage,
      known: link?.lineage ?? [],
      attempt: ++attempts,
      received: mark?.received ?? 0,
      chain: mark?.chain ?? CHAIN_START,
      token,
      acked: link?.outbox.acked ?? 0,
      signed: false,
      encrypted: false,
    };
    return encodeFrame(this.called);
  }

  /** The reason sent before closing, for the other's log. */
  refuse(reason: string): Uint8Array {
    return encodeFrame({ kind: "refusal", reason });
  }

  /** A frame has arrived; a `RemoteError` ends the connection. */
  receive(data: Uint8Array, now: number): void {
    const frame = decodeFrame(data);
    this.heardAt = now;
    if (this.link === null) return this.onGreeting(frame, now);
    switch (frame.kind) {
      case "packets":
        this.onPackets(this.link, frame.first, frame.bodies, frame.previous);
        break;
      case "ack":
        this.core.outbox(this.link).ack(frame.number, frame.chain);
        break;
      case "nack":
        this.onNack(this.link, frame.number);
        break;
      case "pause":
        this.isPaused = true;
        break;
      case "presence":
        for (const name of frame.gone) this.present.delete(name);
        for (const name of frame.come) this.present.add(name);
        break;
      case "refusal":
        throw new RemoteError(`it refuses: ${frame.reason}`);
      case "heartbeat":
        // Timers of hidden pages are late, so a heartbeat is answered when it arrives.
        if (now - this.sentAt > HEARTBEAT / 2) this.control.push({ kind: "heartbeat" });
        break;
      case "greeting":
      case "gone":
        throw new RemoteError(`it sends a ${frame.kind} after the handshake`);
    }
    const reason = this.core.rejected.get(this.link);
    if (reason !== undefined) {
      this.core.rejected.delete(this.link);
      throw new RemoteError(reason);
    }
  }

  private onPackets(link: number, first: number, bodies: Uint8Array[], previous: Uint8Array): void {
    const { core } = this;
    if (this.isFull) return; // they were sent before the other was informed
    if (core.undeliveredBytes > MAX_WAITING) {
      this.isFull = true;
      this.control.push({ kind: "pause" });
      return;
    }
    const state = core.state.links.get(link)!;
    if (first > state.received + 1) {
      this.lacks = true;
      return;
    }
    if (first === state.received + 1 && !isEqual(previous, state.receivedChain))
      throw new ForkError(`its packets up to ${state.received} are not those that it sent before`);
    bodies.forEach((data, i) => core.step({ kind: "packet", link, number: first + i, data }));
  }

  private onNack(link: number, number: number): void {
    const { state } = this.core.outbox(link);
    this.isPaused = false;
    if (number > state.last) throw new RemoteError(`it has packet ${number}, and only ${state.last} were sent`);
    if (number >= state.acked) this.resendAfter = number;
  }

  // Sending

  /** The next frames to send; empty if there are none. */
  takeFrames(now: number): Uint8Array[] {
    if (this.link === null) return [];
    const { core, link } = this;
    const frames = this.control.splice(0);
    const mark = core.mark(link);
    if (this.isFull && core.undeliveredBytes < MAX_WAITING / 2) {
      this.isFull = false;
      this.lacks = true;
    }
    if (this.lacks) {
      this.lacks = false;
      frames.push({ kind: "nack", number: core.state.links.get(link)!.received });
    }
    if (mark.received > this.ackSent && now - this.ackSentAt >= ACK_PAUSE) {
      this.ackSent = mark.received;
      this.ackSentAt = now;
      frames.push({ kind: "ack", number: mark.received, chain: mark.chain });
    }
    this.rewind(link, now);
    const outbox = core.outbox(link);
    while (mark.sent > this.sent && !this.isPaused) {
      const bodies = outbox.after(this.sent, mark.sent, FRAME_BYTES, FRAME_PACKETS);
      const previous = outbox.chainAt(this.sent)!;
      frames.push({ kind: "packets", first: this.sent + 1, bodies, previous });
      this.sent += bodies.length;
    }
    if (frames.length) this.sentAt = now;
    return frames.map(encodeFrame);
  }

  /** Resend lost packets: after a nack, or without acks for a while. */
  private rewind(link: number, now: number): void {
    const { acked } = this.core.outbox(link).state;
    if (this.resendAfter !== null) {
      this.sent = Math.min(this.sent, this.resendAfter);
      this.resendAfter = null;
    }
    if (acked > this.ackedBefore || this.sent <= acked || this.isPaused) {
      this.ackedBefore = acked;
      this.movedAt = now;
    } else if (now - this.movedAt > RESEND) {
      this.sent = acked;
      this.movedAt = now;
    }
    this.sent = Math.max(this.sent, acked);
  }

  /** Called periodically: the reason why the connection must end, if any. */
  tick(now: number): string | null {
    if (now - this.heardAt > SILENCE) return "it was silent for too long";
    if (now - this.sentAt > HEARTBEAT) this.control.push({ kind: "heartbeat" });
    return null;
  }

  /** This process was suspended: nobody counts as silent for that time. */
  excuse(late: number): void {
    this.heardAt += late;
  }

  // Greetings

  private onGreeting(frame: Frame, now: number): void {
    if (frame.kind === "refusal") throw new RemoteError(`it refuses: ${frame.reason}`);
    if (frame.kind === "gone") throw new GoneError(`${this.name} knows nothing of this phone any more`);
    if (frame.kind !== "greeting") throw new RemoteError("its first frame is not a greeting");
    const link = this.findLink(frame);
    this.checkResumable(link, frame);
    const state = this.core.state.links.get(link)!;
    if (!isSameLineage(state.lineage, frame.lineage))
      this.core.step({ kind: "met", link, lineage: frame.lineage });
    const outbox = this.core.outbox(link);
    this.sent = Math.max(frame.received, outbox.state.acked);
    if (this.sent === frame.received) outbox.ack(frame.received, frame.chain);
    this.ackedBefore = outbox.state.acked;
    this.openedAt = this.movedAt = this.sentAt = now;
    this.present.add(this.name);
    this.link = link;
  }

  /** The link that a greeting is for, which may be new. */
  private findLink(greeting: Greeting): number {
    const { core, mine } = this;
    const { group, name } = core.state;
    const { contact } = greeting;
    const called = this.called!;
    if (!greeting.versions.some((version) => VERSIONS.includes(version)))
      throw new RemoteError(
        `it speaks versions ${greeting.versions.join(", ")} of the wire format, and ${name} ${VERSIONS.join(", ")}`,
      );
    if (greeting.group !== group) throw new RemoteError(`it is of group '${greeting.group}', ${name} of '${group}'`);
    if (greeting.protocol !== PROTOCOL) throw new RemoteError(`it uses protocol ${greeting.protocol}`);
    if (contact.isPhone || contact.name !== this.name)
      throw new RemoteError(`${contact.name} answers, not ${this.name}`);
    if (greeting.you !== mine) throw new RemoteError("it answers another address than the one that has called");
    const theirs = addressOf(contact);
    if (called.you !== 0n && called.you !== theirs)
      throw new RemoteError(`${contactLabel(contact)} answers for another incarnation`);
    const known = core.findLink(mine, theirs);
    if (known !== null) {
      const { outbox, received } = core.state.links.get(known)!;
      const isBlank = (each: Greeting): boolean => !each.received && !each.acked;
      // The link was used and forgotten there before the call arrived. The next call states that.
      if (isBlank(called) && isBlank(greeting) && (received || outbox.acked)) throw new StaleError("it was forgotten");
      const before = core.state.links.get(known)!.contact;
      if (before.at === contact.at) return known;
    }
    core.step({ kind: "link", mine, contact });
    return core.findLink(mine, theirs)!;
  }

  /** Raise a `ForkError` unless both sides remember the same of the link. */
  private checkResumable(link: number, greeting: Greeting): void {
    const { core, name } = this;
    const state = core.state.links.get(link)!;
    const { lineage, known, received } = greeting;
    if (!lineage.length || Math.max(lineage.length, known.length) > MAX_LIVES)
      throw new RemoteError(`its greeting lists ${lineage.length} lives`);
    if (isEarlier(lineage, state.lineage)) throw new StaleError(`an earlier life of ${name} answers`);
    if (isForked(lineage, state.lineage)) throw new ForkError(`${name} has an older or another store than before`);
    const older = `this phone's store is older than what ${name} remembers of it: use the latest, or another name`;
    if (isForked(core.state.lineage, known)) throw new ForkError(older);
    const outbox = core.outbox(link);
    if (received > outbox.state.last) throw new ForkError(older);
    if (received < outbox.state.acked) {
      const isSameLife = state.lineage.length > 0 && isSameLineage(lineage, state.lineage);
      if (!isSameLife) throw new ForkError(`${name} has an older store than before`);
      return; // its later acks have overtaken its greeting
    }
    const value = outbox.chainAt(received);
    if (value !== null && !isEqual(value, greeting.chain)) throw new ForkError(older);
  }
}
