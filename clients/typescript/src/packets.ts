/** The packets between a phone and its super peers (docs/wire-phones.md). */

import { EMPTY, type Id } from "./bytes.js";
import { RemoteError } from "./errors.js";
import { decode, encode, type Value } from "./msgpack.js";
import * as read from "./reading.js";

export interface MessageKey {
  origin: Id;
  seq: number;
}

/** A message that a phone brings to another super peer: others may lack it. */
export interface BacklogEntry {
  original: MessageKey;
  payload: Uint8Array;
  /** The stream of the author's super peer, and its slot there, if a phone has broadcast it. */
  author: [Id, Id] | null;
  /** Whether it is known that no other process has it. */
  isLost: boolean;
}

export interface Backlog {
  entries: BacklogEntry[];
  admissions: Map<Id, MessageKey>;
  awaited: Map<Id, number>;
}

export interface Downlink extends MessageKey {
  kind: "downlink";
  payload: Uint8Array;
  number: number;
  senderPrevious: number;
  causes: number[];
  stream: Id;
  slot: Id;
  admissions: Map<Id, MessageKey>;
  isAgain: boolean;
}

export interface Welcome {
  kind: "welcome";
  stream: Id;
  slot: Id;
  sent: number;
  number: number;
  /** Numbers beyond that which were delivered before a move. */
  skipped: number[];
  /** The super peer's last number. */
  current: number;
  admissions: Map<Id, MessageKey>;
  unstable: [number, BacklogEntry][];
  snapshot: Uint8Array | null;
  last: number;
}

/** How much of each stream somebody has delivered. */
export type Counts = Map<Id, number>;

export interface MoveReady {
  kind: "ready";
  stream: Id;
  slot: Id;
  sent: number;
  counts: Counts;
  admissions: Map<Id, MessageKey>;
}

export type FromSuperPeer =
  | Downlink
  | Welcome
  | MoveReady
  | { kind: "released"; counts: Counts; done: Id[] }
  | { kind: "assignment"; seq: number; number: number }
  | { kind: "refused"; accepted: number | null }
  | { kind: "stable"; number: number; last: number };

const UPLINK = 6;
const ASSIGNMENT = 8;
const ACK = 10;
const DOWNLINK = 60;
const JOIN = 61;
const WELCOME = 62;
const MOVE = 63;
const MOVE_READY = 64;
const RELEASE = 65;
const RELEASED = 66;
const ARRIVAL = 67;
const LEAVE = 68;
const REFUSED = 69;
const STABLE = 70;
const MAX_AHEAD = 1_000_000;

// Packets sent by phones

export function encodeUplink(
  payload: Uint8Array,
  origin: Id,
  seq: number,
  causes: Iterable<number>,
  deliveredUpTo: number,
): Uint8Array {
  return encode([UPLINK, payload, origin, seq, writeBits(causes), deliveredUpTo]);
}

export function encodeAck(after: number, deliveredUpTo: number, causes: Iterable<number>): Uint8Array {
  return encode([ACK, after, deliveredUpTo, writeBits(causes)]);
}

export const encodeLeave = (sent: number): Uint8Array => encode([LEAVE, sent]);

export const encodeMove = (): Uint8Array => encode([MOVE]);

export const encodeRelease = (counts: Counts): Uint8Array => encode([RELEASE, new Map<Value, Value>(counts)]);

export const encodeArrival = (counts: Counts, done: Id[]): Uint8Array =>
  encode([ARRIVAL, new Map<Value, Value>(counts), done]);

export function encodeJoin(backlog: Backlog): Uint8Array {
  const entries = backlog.entries.map(
    (entry): Value =>
      new Map<Value, Value>([
        ["original", writeKey(entry.original)],
        ["payload", entry.payload],
        ["author", entry.author],
        ["is_lost", entry.isLost],
      ]),
  );
  const admissions = new Map<Value, Value>();
  for (const [stream, key] of backlog.admissions) admissions.set(stream, writeKey(key));
  const fields = new Map<Value, Value>([
    ["entries", entries],
    ["admissions", admissions],
    ["awaited", new Map<Value, Value>(backlog.awaited)],
  ]);
  return encode([JOIN, fields]);
}

const writeKey = (key: MessageKey): Value => [key.origin, key.seq];

/** A set of numbers: the smallest, and a bit for each from there on. */
export function writeBits(numbers: Iterable<number>): Value {
  const sorted = [...numbers].sort((one, other) => one - other);
  if (!sorted.length) return [0, EMPTY];
  const first = sorted[0];
  const field = new Uint8Array(((sorted[sorted.length - 1] - first) >> 3) + 1);
  for (const number of sorted) field[(number - first) >> 3] |= 1 << ((number - first) & 7);
  return [first, field];
}

export function readBits(value: Value): number[] {
  const fields = read.array(value, 2);
  const first = read.integer(fields[0]);
  const field = read.bytes(fields[1]);
  if (field.length > MAX_AHEAD / 8 + 1) throw new RemoteError("it sends numbers that are too far apart");
  const numbers: number[] = [];
  field.forEach((byte, i) => {
    for (let bit = 0; bit < 8; bit++) if ((byte >> bit) & 1) numbers.push(first + 8 * i + bit);
  });
  return numbers;
}

// Packets received by phones

export function decodePacket(data: Uint8Array): FromSuperPeer {
  const fields = read.array(decode(data), 1);
  switch (fields[0]) {
    case DOWNLINK:
      return readDownlink(read.array(fields, 7));
    case WELCOME:
      return readWelcome(read.array(fields, 8));
    case MOVE_READY:
      return readMoveReady(read.array(fields, 6));
    case RELEASED:
      read.array(fields, 3);
      return { kind: "released", counts: readCounts(fields[1]), done: read.list(fields[2], read.id) };
    case ASSIGNMENT:
      read.array(fields, 3);
      return { kind: "assignment", seq: read.integer(fields[1]), number: read.integer(fields[2]) };
    case REFUSED:
      return { kind: "refused", accepted: fields[1] == null ? null : read.integer(fields[1]) };
    case STABLE:
      read.array(fields, 3);
      return { kind: "stable", number: read.integer(fields[1]), last: read.integer(fields[2]) };
  }
  throw new RemoteError(`it sends a packet with tag ${String(fields[0])} to a phone`);
}

function readDownlink(fields: Value[]): Downlink {
  return {
    kind: "downlink",
    payload: read.bytes(fields[1]),
    origin: read.id(fields[2]),
    seq: read.integer(fields[3]),
    number: read.integer(fields[4]),
    senderPrevious: read.integer(fields[5]),
    causes: readBits(fields[6]),
    stream: read.id(fields[7] ?? 0),
    slot: read.id(fields[8] ?? 0),
    admissions: readAdmissions(fields[9]),
    isAgain: read.flag(fields[10] ?? false),
  };
}

function readWelcome(fields: Value[]): Welcome {
  return {
    kind: "welcome",
    stream: read.id(fields[1]),
    slot: read.id(fields[2]),
    sent: read.integer(fields[3]),
    number: read.integer(fields[4]),
    skipped: readBits(fields[5]),
    current: read.integer(fields[6]),
    admissions: readAdmissions(fields[7]),
    unstable: read.list(fields[8] ?? [], (each) => {
      const [number, entry] = read.array(each, 2);
      return [read.integer(number), readEntry(entry)];
    }),
    snapshot: fields[9] == null ? null : read.bytes(fields[9]),
    last: read.integer(fields[10] ?? 0),
  };
}

function readMoveReady(fields: Value[]): MoveReady {
  return {
    kind: "ready",
    stream: read.id(fields[1]),
    slot: read.id(fields[2]),
    sent: read.integer(fields[3]),
    counts: readCounts(fields[4]),
    admissions: readAdmissions(fields[5]),
  };
}

const readCounts = (value: Value): Counts => read.map(value, read.id, read.integer);

function readEntry(value: Value): BacklogEntry {
  const fields = read.named(value);
  const author = fields.get("author") ?? null;
  return {
    original: readKey(fields.get("original") ?? null),
    payload: read.bytes(fields.get("payload") ?? null),
    author: author === null ? null : (read.list(author, read.id).slice(0, 2) as [Id, Id]),
    isLost: read.flag(fields.get("is_lost") ?? false),
  };
}

function readKey(value: Value): MessageKey {
  const [origin, seq] = read.array(value, 2);
  return { origin: read.id(origin), seq: read.integer(seq) };
}

const readAdmissions = (value: Value | undefined): Map<Id, MessageKey> =>
  read.map(value ?? new Map(), read.id, readKey);
