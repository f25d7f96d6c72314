/** Encoding and decoding of bodies: bytes, text or any JSON value. */

import { fromUtf8, utf8 } from "./bytes.js";
import { LocalError, RemoteError } from "./errors.js";
import { decode, encode, type Value } from "./msgpack.js";
import * as read from "./reading.js";

/** Integers beyond 2^53 are bigints: a number would not hold them exactly. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };
export type Body = Uint8Array | Json;

/** A message's payload: its body and metadata. */
export interface Envelope {
  kind: number;
  /** Whether its sender's previous message is an immediate dependency. */
  afterOwn: boolean;
  body: Uint8Array;
  /** The name of the phone that has broadcast it, or the label of the member. */
  author: string;
  /** When it was broadcast, by its sender's clock, in microseconds since 1970; 0 if its sender does not say. */
  time: number;
  contentType: string;
  /** Text or bytes by name, as its sender's application gave them. */
  headers: Record<string, string | Uint8Array>;
  /** The same of this library. */
  reserved: Record<string, string>;
}

/** Metadata that an application adds to a body. */
export interface About {
  contentType?: string;
  headers?: Record<string, string | Uint8Array>;
}

/** The same, with the metadata of this library. */
export interface AboutAll extends About {
  reserved?: Record<string, string>;
}

const BYTES = 0;
const TEXT = 1;
const JSON_VALUE = 2;
const MAX_BODY_BYTES = 1 << 23;
const [MAX_HEADERS, MAX_NAME, MAX_HEADER_BYTES, MAX_CONTENT_TYPE] = [64, 100, 1 << 13, 255];
/** What names of the library's own begin with. */
const RESERVED = "antecede-";
const NOTHING = { kind: BYTES, afterOwn: false, author: "", time: 0, contentType: "", headers: {}, reserved: {} };
const MAX_DEPTH = 100;
const MAX_INTEGER = 1n << 2048n;

/** At `time`, in microseconds since 1970. */
export function wrap(body: Body, afterOwn: boolean, author: string, time = 0, about: AboutAll = {}): Uint8Array {
  const isBytes = body instanceof Uint8Array;
  const kind = isBytes ? BYTES : typeof body === "string" ? TEXT : JSON_VALUE;
  const data = isBytes ? body : utf8(kind === TEXT ? wellFormed(body as string, "body") : toJson(body, "body", 0));
  if (data.length > MAX_BODY_BYTES)
    throw new LocalError(`body: ${data.length} bytes; a message has ${MAX_BODY_BYTES} at most`);
  const fields: Value[] = [kind, afterOwn, null, data, author];
  const { contentType = "", headers = {}, reserved = {} } = about;
  const isNamed = contentType !== "" || Object.keys({ ...headers, ...reserved }).length > 0;
  if (contentType.length > MAX_CONTENT_TYPE) throw new LocalError("contentType: it is too long");
  if (time || isNamed) fields.push(time);
  if (isNamed) fields.push(wellFormed(contentType, "contentType"), writeHeaders(headers, reserved));
  return encode(fields);
}

function writeHeaders(headers: Record<string, unknown>, reserved: Record<string, string>): Value {
  const written = new Map<Value, Value>();
  let size = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name || name.length > MAX_NAME || name.startsWith(RESERVED))
      throw new LocalError(`headers: '${name}' is no name of an application's`);
    if (typeof value !== "string" && !(value instanceof Uint8Array))
      throw new LocalError(`headers: '${name}' is neither text nor bytes`);
    written.set(wellFormed(name, "headers"), typeof value === "string" ? wellFormed(value, `headers: ${name}`) : value);
    size += utf8(name).length + (typeof value === "string" ? utf8(value) : value).length;
  }
  if (written.size > MAX_HEADERS || size > MAX_HEADER_BYTES)
    throw new LocalError(`headers: a message has ${MAX_HEADERS} with ${MAX_HEADER_BYTES} bytes at most`);
  for (const [name, value] of Object.entries(reserved)) written.set(name, value);
  return written.size ? written : null;
}

/** Headers of the application and of this library; values of other types are ignored. */
export function readHeaders(value: Value): Pick<Envelope, "headers" | "reserved"> {
  const headers: [string, string | Uint8Array][] = [];
  const reserved: [string, string][] = [];
  for (const [name, each] of value === null ? [] : read.named(value)) {
    if (typeof name !== "string") continue;
    if (!name.startsWith(RESERVED)) {
      if (typeof each === "string" || each instanceof Uint8Array) headers.push([name, each]);
    } else if (typeof each === "string") reserved.push([name, each]);
  }
  return { headers: Object.fromEntries(headers), reserved: Object.fromEntries(reserved) };
}

/** The envelope in a payload; a payload that is none is a body of bytes. */
export function unwrap(payload: Uint8Array): Envelope {
  try {
    const fields = read.array(decode(payload), 4);
    const [kind, afterOwn, body] = [read.integer(fields[0]), read.flag(fields[1]), read.bytes(fields[3])];
    return {
      kind,
      afterOwn,
      body,
      author: read.text(fields[4] ?? ""),
      time: read.integer(fields[5] ?? 0),
      contentType: read.text(fields[6] ?? ""),
      ...readHeaders(fields[7] ?? null),
    };
  } catch (error) {
    if (error instanceof RemoteError) return { ...NOTHING, body: payload };
    throw error;
  }
}

/** The decoded body; raw bytes if they are not of the declared kind. */
export function decodeBody(envelope: Envelope): Body {
  try {
    if (envelope.kind === TEXT) return fromUtf8(envelope.body);
    if (envelope.kind === JSON_VALUE) return fromJson(fromUtf8(envelope.body));
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof SyntaxError || error instanceof RangeError)) throw error;
  }
  return envelope.body;
}

/** JSON that means the same everywhere, or an error that says where it would not. */
function toJson(value: unknown, path: string, depth: number): string {
  if (depth > MAX_DEPTH) throw new LocalError(`body: it is nested deeper than ${MAX_DEPTH} levels`);
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return JSON.stringify(wellFormed(value, path));
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new LocalError(`${path}: ${value} is no number of JSON`);
    return Object.is(value, -0) ? "-0.0" : String(value);
  }
  if (typeof value === "bigint") {
    if (value >= MAX_INTEGER || value <= -MAX_INTEGER)
      throw new LocalError(`${path}: an integer of more than 2048 bits`);
    return String(value);
  }
  if (Array.isArray(value)) {
    return `[${Array.from(value, (each, i) => toJson(each, `${path}[${i}]`, depth + 1)).join()}]`;
  }
  const parent = typeof value === "object" ? Object.getPrototypeOf(value) : undefined;
  if (parent === Object.prototype || (parent === null && typeof value === "object")) {
    const parts = Object.entries(value as object).map(
      ([key, each]) => `${JSON.stringify(wellFormed(key, path))}:${toJson(each, `${path}.${key}`, depth + 1)}`,
    );
    return `{${parts.join()}}`;
  }
  throw new LocalError(
    `${path}: a value of type ${(parent as object | undefined)?.constructor?.name ?? typeof value} would come ` +
      "back as another one, or not at all; use text, numbers, booleans, null, arrays and plain objects",
  );
}

function wellFormed(text: string, path: string): string {
  if (/[\ud800-\udfff]/u.test(text))
    throw new LocalError(`${path}: the text has half of a surrogate pair, which cannot be encoded`);
  return text;
}

/** Strings and numbers in JSON. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0000integer";

function fromJson(text: string): Json {
  if (!/\d{16}/.test(text)) return JSON.parse(text) as Json;
  const isExact = (token: string): boolean => !/^-?\d+$/.test(token) || Number.isSafeInteger(Number(token));
  const marked = text.replace(TOKENS, (token) =>
    token[0] === '"' || isExact(token) ? token : `{${JSON.stringify(MARK)}:"${token}"}`,
  );
  return JSON.parse(marked, (_, value: unknown) => {
    const digits = typeof value === "object" && value !== null ? (value as Record<string, unknown>)[MARK] : null;
    return typeof digits === "string" && /^-?\d{1,700}$/.test(digits) ? BigInt(digits) : value;
  }) as Json;
}

