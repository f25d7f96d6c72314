/** Who a process is: a name, and for each attempt to join, an address that the name and a nonce prove. */

import { concat, toHex, utf8, type Id } from "./bytes.js";
import { RemoteError } from "./errors.js";
import { encode, type Value } from "./msgpack.js";
import * as read from "./reading.js";
import { sha256 } from "./sha256.js";

export interface Contact {
  name: string;
  nonce: Uint8Array;
  at: string;
  isPhone: boolean;
}

export const NONCE_BYTES = 8;
/** Origins from here on are phones. */
export const PHONE_ORIGINS = 3n << 61n;

export function addressOf(contact: Contact): Id {
  const kind = contact.isPhone ? "antecede phone\0" : "antecede address\0";
  const digest = sha256(concat(utf8(`${kind}${contact.name}\0`), contact.nonce));
  return new DataView(digest.buffer).getBigUint64(0) >> 1n;
}

/** The origin of a phone's messages: of the slot that it has at the super peer with this stream. */
export function authorId(stream: Id, slot: Id): Id {
  const digest = sha256(utf8(`${stream}/${slot}`));
  let id = 0n;
  for (let i = 6; i >= 0; i--) id = (id << 8n) | BigInt(digest[i]);
  return id | PHONE_ORIGINS;
}

/** What applications call the phone or the member that has broadcast a message. */
export function originLabel(author: string, origin: Id): string {
  if (origin < PHONE_ORIGINS) return author || `~${origin.toString(16)}`;
  return `${author}~${(origin & 0xffffffffn).toString(16).padStart(8, "0")}`;
}

export function contactLabel(contact: Contact): string {
  return contact.nonce.length ? `${contact.name}~${toHex(contact.nonce.subarray(0, 4))}` : contact.name;
}

export function writeContact(contact: Contact): Value {
  return [contact.name, contact.nonce, contact.at, contact.isPhone];
}

export const encodeContact = (contact: Contact): Uint8Array => encode(writeContact(contact));

export function readContact(value: Value): Contact {
  const fields = read.array(value, 1);
  const contact = {
    name: read.text(fields[0]),
    nonce: read.bytes(fields[1] ?? new Uint8Array(0)),
    at: read.text(fields[2] ?? ""),
    isPhone: read.flag(fields[3] ?? false),
  };
  if (!isName(contact.name) || ![0, NONCE_BYTES].includes(contact.nonce.length) || contact.at.length > 300)
    throw new RemoteError("not a contact: its name, nonce or place cannot be");
  return contact;
}

/** Up to 64 printable characters, without spaces, `@`, `:`, slashes, commas or `~`. */
export const isName = (name: string): boolean =>
  /^(?!\.)[^\s@:/\\,~\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Z}]{1,64}$/u.test(name);
