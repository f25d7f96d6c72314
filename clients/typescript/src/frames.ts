/** The frames that cross a connection: a msgpack array each, one binary message of a WebSocket. */

import type { Id } from "./bytes.js";
import { readContact, writeContact, type Contact } from "./contact.js";
import { RemoteError } from "./errors.js";
import { decode, encode, type Value } from "./msgpack.js";
import * as read from "./reading.js";

/** One opening of a store: an id chosen at random, and how many messages had been broadcast before. */
export type Life = [id: string, broadcasts: number];

export interface Greeting {
  kind: "greeting";
  versions: number[];
  group: string;
  protocol: string;
  contact: Contact;
  /** The address that is called; 0 if it is not known. */
  you: Id;
  lineage: Life[];
  known: Life[];
  attempt: number;
  received: number;
  chain: Uint8Array;
  token: string;
  acked: number;
  signed: boolean;
  encrypted: boolean;
}

export type Frame =
  | Greeting
  | { kind: "refusal"; reason: string }
  | { kind: "packets"; first: number; bodies: Uint8Array[]; previous: Uint8Array }
  | { kind: "ack"; number: number; chain: Uint8Array }
  | { kind: "nack"; number: number }
  | { kind: "heartbeat" }
  | { kind: "pause" }
  | { kind: "gone" }
  | { kind: "presence"; come: string[]; gone: string[] }
  | { kind: "ignored" };

const REFUSAL = 1;
const PACKETS = 2;
const ACK = 3;
const NACK = 4;
const HEARTBEAT = 8;
const PAUSE = 11;
const GREETING = 12;
const GONE = 13;
const PRESENCE = 42;
/** Of signatures, which a phone leaves to its super peer: certificates, evidence, digests. */
const OF_SIGNATURES = [9, 10, 61];
const MAX_FRAME_PACKETS = 4096;

export function encodeFrame(frame: Frame): Uint8Array {
  switch (frame.kind) {
    case "greeting":
      return encode([
        GREETING,
        frame.versions,
        frame.group,
        frame.protocol,
        writeContact(frame.contact),
        frame.you,
        frame.lineage,
        frame.known,
        frame.attempt,
        frame.received,
        frame.chain,
        frame.token,
        frame.acked,
        frame.signed,
        frame.encrypted,
      ]);
    case "refusal":
      return encode([REFUSAL, frame.reason]);
    case "packets":
      return encode([PACKETS, frame.first, frame.bodies, frame.previous]);
    case "ack":
      return encode([ACK, frame.number, frame.chain]);
    case "nack":
      return encode([NACK, frame.number]);
    case "heartbeat":
      return encode([HEARTBEAT]);
    case "pause":
      return encode([PAUSE]);
  }
  throw new TypeError(`a phone sends no ${frame.kind}`);
}

export function decodeFrame(data: Uint8Array): Frame {
  const fields = read.array(decode(data), 1);
  switch (fields[0]) {
    case GREETING:
      return readGreeting(read.array(fields, 11));
    case REFUSAL:
      return { kind: "refusal", reason: read.text(fields[1] ?? null).slice(0, 500) };
    case PACKETS: {
      read.array(fields, 4);
      const bodies = read.list(fields[2], read.bytes);
      if (bodies.length > MAX_FRAME_PACKETS) throw new RemoteError(`a frame of ${bodies.length} packets`);
      return { kind: "packets", first: read.integer(fields[1]), bodies, previous: read.bytes(fields[3]) };
    }
    case ACK:
      read.array(fields, 3);
      return { kind: "ack", number: read.integer(fields[1]), chain: read.bytes(fields[2]) };
    case NACK:
      return { kind: "nack", number: read.integer(fields[1] ?? null) };
    case HEARTBEAT:
      return { kind: "heartbeat" };
    case PAUSE:
      return { kind: "pause" };
    case GONE:
      return { kind: "gone" };
    case PRESENCE:
      read.array(fields, 3);
      return { kind: "presence", come: read.list(fields[1], read.text), gone: read.list(fields[2], read.text) };
  }
  if (OF_SIGNATURES.includes(fields[0] as number)) return { kind: "ignored" };
  throw new RemoteError(`it sends a frame with tag ${String(fields[0])} to a phone`);
}

function readGreeting(fields: Value[]): Greeting {
  return {
    kind: "greeting",
    versions: read.list(fields[1], read.integer),
    group: read.text(fields[2]),
    protocol: read.text(fields[3]),
    contact: readContact(fields[4]),
    you: read.id(fields[5]),
    lineage: read.list(fields[6], readLife),
    known: read.list(fields[7], readLife),
    attempt: read.integer(fields[8]),
    received: read.integer(fields[9]),
    chain: read.bytes(fields[10]),
    token: read.text(fields[11] ?? ""),
    acked: read.integer(fields[12] ?? 0),
    signed: read.flag(fields[13] ?? false),
    encrypted: read.flag(fields[14] ?? false),
  };
}

function readLife(value: Value): Life {
  const [id, broadcasts] = read.array(value, 2);
  return [read.text(id), read.integer(broadcasts)];
}
