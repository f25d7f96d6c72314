/** Addressed messages: they are sent to all processes, but delivered only to the addressees' applications. */

import { readHeaders, unwrap, type Envelope } from "./body.js";
import { RemoteError } from "./errors.js";
import { decode } from "./msgpack.js";
import * as read from "./reading.js";

export const ADDRESSED = 3;

interface Addressed {
  /** Names or labels. */
  to: string[];
  content: Uint8Array;
  /** Whether the content is encrypted for members; phones have no keys for that. */
  isSealed: boolean;
  sender: string;
}

/** Whether a message is for this name or label. One byte shows that it is for everybody. */
export function isFor(payload: Uint8Array, names: string[]): boolean {
  const addressed = payload[1] === ADDRESSED ? readAddressed(unwrap(payload)) : null;
  return addressed === null || addressed.to.some((each) => names.includes(each));
}

/** The payload as if it were for everybody; unchanged if it cannot be read here. `sender` is its origin. */
export function open(envelope: Envelope, sender: string): Envelope {
  const addressed = readAddressed(envelope);
  if (addressed === null || addressed.isSealed || addressed.sender !== sender) return envelope;
  try {
    return { ...envelope, ...readContent(addressed.content) };
  } catch (error) {
    if (error instanceof RemoteError) return envelope;
    throw error;
  }
}

function readContent(content: Uint8Array): Partial<Envelope> {
  const fields = read.array(decode(content), 2);
  return {
    kind: read.integer(fields[0]),
    body: read.bytes(fields[1]),
    contentType: read.text(fields[2] ?? ""),
    ...readHeaders(fields[3] ?? null),
  };
}

/** The content of an addressed envelope; null if it is not one, and so a body of bytes. */
function readAddressed(envelope: Envelope): Addressed | null {
  if (envelope.kind !== ADDRESSED) return null;
  try {
    const fields = read.array(decode(envelope.body), 4);
    return {
      to: read.list(fields[0], read.text),
      content: read.bytes(fields[1]),
      isSealed: read.flag(fields[2]),
      sender: read.text(fields[3]),
    };
  } catch (error) {
    if (error instanceof RemoteError) return null;
    throw error;
  }
}
