/** How a phone takes part in a group. */

import { isName } from "./contact.js";
import { LocalError } from "./errors.js";
import type { Store } from "./store.js";

export interface JoinOptions {
  /** This phone's name: one of its own, which its token proves. */
  me: string;
  /** The members that it may be behind: "sue@wss://host:8000". The first that answers is its super peer. */
  superPeers: string[];
  /**
   * Where it stores its state: the name of a database in a browser, a folder in Node. Without one it is a new
   * phone at each start, and its unsent messages are lost with the process.
   */
  store?: string | Store | null;
  /** Whether to wait for the disk, so that what was accepted survives a power failure too. True by default. */
  sync?: boolean;
  /** The token that proves its name, if the group has keys; a function is called at each call to a super peer. */
  token?: string | (() => string | Promise<string>);
  /** Receives the snapshot with which this phone starts; it replaces the application's state. */
  restore?: (state: Uint8Array) => void | Promise<void>;
  /** For how many milliseconds `join` waits for a place in the group; for ever, unless it is given. */
  timeout?: number;
  /** Whether links beyond this machine may be unencrypted. */
  insecure?: boolean;
}

/** The URL of each super peer by name. */
export function parseSuperPeers(options: JoinOptions): Map<string, string> {
  if (!isName(options.me))
    throw new LocalError(`me: '${options.me}' is not a name: use up to 64 characters, without spaces, @, :, / or ~`);
  if (!Array.isArray(options.superPeers) || !options.superPeers.length)
    throw new LocalError('superPeers: name at least one, as in ["sue@wss://host:8000"]');
  const places = new Map<string, string>();
  for (const text of options.superPeers) {
    const at = text.indexOf("@");
    const [name, url] = [text.slice(0, at).trim(), text.slice(at + 1).trim()];
    if (at < 0 || !isName(name) || !/^wss?:\/\/[^/]/.test(url) || !URL.canParse(url))
      throw new LocalError(`superPeers: '${text}' is not a name and a place; write "sue@wss://host:8000"`);
    if (places.has(name)) throw new LocalError(`superPeers: ${name} is listed twice`);
    if (url.startsWith("ws:") && !options.insecure && !isLoopback(new URL(url).hostname))
      throw new LocalError(
        `superPeers: ${name} at ${url} would be reached without encryption; use wss://, or set insecure: true`,
      );
    places.set(name, url);
  }
  return places;
}

const isLoopback = (host: string): boolean => host === "localhost" || host === "[::1]" || /^127\./.test(host);
