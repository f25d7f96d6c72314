/**
 * Requests and replies: messages like any other, whose headers say which belongs to which.
 *
 * A request names a number that its sender has drawn and who is asked; a reply names the number. The reply
 * takes effect when the application of the sender is given it, so everything that it depends on was given
 * before, and what is broadcast then depends on it. A request is forgotten with its process.
 */

import { randomBytes, toHex } from "./bytes.js";
import type { Message } from "./message.js";

export const REQUEST = "antecede-request";
export const REPLY = "antecede-reply";

/**
 * A request has no reply.
 *
 * - `unknown`: nobody of that name is connected; nothing was broadcast.
 * - `late`: there was none in time. One that comes later is delivered like any message.
 * - `closed`: this phone has stopped.
 */
export class RequestError extends Error {
  override name = "RequestError";

  constructor(
    readonly who: string,
    readonly reason: "unknown" | "late" | "closed",
    text: string,
  ) {
    super(text);
  }
}

interface Pending {
  who: string;
  resolve: (reply: Message) => void;
  reject: (error: Error) => void;
}

export class Requests {
  private readonly pending = new Map<string, Pending>();

  /** Send a request with the given header and wait for the reply. `late` gives the reason for a time-out. */
  async ask(
    who: string,
    send: (header: Record<string, string>) => Promise<unknown>,
    timeout: number | undefined,
    late: () => RequestError,
  ): Promise<Message> {
    const number = toHex(randomBytes(8));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const reply = new Promise<Message>((resolve, reject) => {
      this.pending.set(number, { who, resolve, reject });
      if (timeout !== undefined) timer = setTimeout(() => reject(late()), timeout);
    });
    reply.catch(() => undefined); // it is awaited only once the request is sent
    try {
      await send({ [REQUEST]: `${number} ${who}` });
      return await reply;
    } finally {
      clearTimeout(timer);
      this.pending.delete(number);
    }
  }

  /** Handle a message delivered to the application. */
  take(message: Message): void {
    if (!this.pending.size) return;
    const pending = this.pending.get(message.reservedHeader(REPLY)[0]);
    if (pending && isCalled(message.origin, pending.who)) pending.resolve(message);
  }

  close(): void {
    for (const { who, reject } of this.pending.values())
      reject(new RequestError(who, "closed", `the group is closed, and ${who} has not replied`));
  }
}

/** The name in a label. */
export const nameOf = (label: string): string => label.split("~", 1)[0];

/** Whether an origin is the requested process, by label or by name. */
const isCalled = (origin: string, who: string): boolean => who === origin || who === nameOf(origin);
