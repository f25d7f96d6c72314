/** What an application receives from a group. */

import { ADDRESSED, open } from "./addressing.js";
import { decodeBody, unwrap, type About, type Body, type Envelope } from "./body.js";
import { originLabel } from "./contact.js";
import type { GivenMessage } from "./core.js";
import type { MessageKey } from "./packets.js";
import { nameOf, REPLY } from "./requests.js";

/** A message id: its origin, and its sequence number there, from 1. */
export class MessageId {
  constructor(
    readonly origin: string,
    readonly seq: number,
  ) {}

  toString(): string {
    return `${this.origin}:${this.seq}`;
  }
}

export function messageId(key: MessageKey, author: string): MessageId {
  return new MessageId(originLabel(author, key.origin), key.seq);
}

/** The part of a group with which its messages reply. */
export interface Replying {
  isAsked(message: Message): boolean;
  reply(message: Message, body: Body, options: About & { timeout?: number }): Promise<MessageId>;
}

/** A delivered message. */
export class Message {
  readonly id: MessageId;
  /** Whether this phone has broadcast it itself. */
  readonly own: boolean;
  /** How many times it was delivered to this application, including this one. */
  readonly deliveries: number;
  private readonly envelope: Envelope;

  constructor(
    given: GivenMessage,
    private readonly group: Replying,
  ) {
    const envelope = unwrap(given.delivery.payload);
    this.id = messageId(given.delivery, envelope.author);
    this.envelope = open(envelope, this.id.origin);
    this.own = given.isOwn;
    this.deliveries = given.deliveries;
  }

  get origin(): string {
    return this.id.origin;
  }

  /** The name of its author, whatever the incarnation. */
  get author(): string {
    return nameOf(this.envelope.author) || this.id.origin;
  }

  get seq(): number {
    return this.id.seq;
  }

  /** As it was passed to `broadcast`. */
  get body(): Body {
    return decodeBody(this.envelope);
  }

  /** When it was broadcast, by its sender's clock; null if its sender does not say. */
  get time(): Date | null {
    return this.envelope.time ? new Date(this.envelope.time / 1000) : null;
  }

  /** The content type given by its sender. */
  get contentType(): string {
    return this.envelope.contentType;
  }

  /** The headers given by its sender: text or bytes by name. */
  get headers(): Record<string, string | Uint8Array> {
    return this.envelope.headers;
  }

  /** Whether it was addressed to this phone and encrypted, so that its body is the undecrypted bytes. */
  get unreadable(): boolean {
    return this.envelope.kind === ADDRESSED;
  }

  /** Whether its sender waits for this phone to `reply`. */
  get isRequest(): boolean {
    return this.group.isAsked(this);
  }

  /** The request to which this is a reply; null if it is none. */
  get replyTo(): MessageId | null {
    const [, id = ""] = this.reservedHeader(REPLY);
    const at = id.lastIndexOf(":");
    return at > 0 && /^\d{1,15}$/.test(id.slice(at + 1)) ? new MessageId(id.slice(0, at), Number(id.slice(at + 1))) : null;
  }

  /** Broadcast a reply to this request, as `broadcast` of the group does. */
  reply(body: Body, options: About & { timeout?: number } = {}): Promise<MessageId> {
    return this.group.reply(this, body, options);
  }

  /** The words of a header of this library; one that is empty if there is no such header. */
  reservedHeader(name: string): string[] {
    return (this.envelope.reserved[name] ?? "").split(" ");
  }

  /** Whether it was delivered before without being acknowledged, so it may have been processed. */
  get redelivered(): boolean {
    return this.deliveries > 1;
  }
}

/** A message of this phone that no super peer has confirmed yet. */
export interface WaitingMessage {
  id: MessageId;
  /** When it was broadcast. */
  since: Date;
  /** The super peer that is to take it; empty if there is none now. */
  superPeer: string;
}

export interface Change {
  /**
   * `came`, `went`: somebody is connected to the group, or is not any more. `connected`, `disconnected`: this
   * phone and its super peer. `moved`: this phone has another super peer. `returned`: the same, and it was given
   * a state, since the former one was gone. `refused`: a super peer does not talk to this phone; `text` says why.
   */
  kind: "came" | "went" | "connected" | "disconnected" | "moved" | "returned" | "refused";
  name: string;
  text: string;
  time: Date;
}
