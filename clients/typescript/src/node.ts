/** For Node: WebSockets that verify who is at the other end, and a store in a folder. */

import { webcrypto, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { WebSocket } from "ws";

import { LocalError } from "./errors.js";
import { FileStore } from "./file-store.js";
import { joinGroup, type Group } from "./group.js";
import type { Platform, Wire, WireEvents } from "./platform.js";
import type { JoinOptions } from "./settings.js";

export * from "./exports.js";

export interface NodeJoinOptions extends JoinOptions {
  /** This phone's folder of keys, as `antecede keys` makes it: the authority that it trusts, and its token. */
  keys?: string;
}

const MAX_BYTES = 1 << 24;
(globalThis as { crypto?: unknown }).crypto ??= webcrypto; // not a global in Node 18

/** Take part in a group as a phone, behind the first super peer that answers. */
export async function join(group: string, options: NodeJoinOptions): Promise<Group> {
  const { keys } = options;
  const authority = keys === undefined ? undefined : await read(`${keys}/ca.pem`);
  const token = options.token ?? (keys === undefined ? "" : () => read(`${keys}/token`));
  const platform: Platform = {
    dial: (url, name, who, events) => dial(url, name, who, events, authority),
    openStore: (folder, sync) => new FileStore(folder, sync),
    token: typeof token === "string" ? () => token : token,
  };
  return joinGroup(group, options, platform);
}

async function read(file: string): Promise<string> {
  try {
    return (await readFile(file, "utf8")).trim();
  } catch (error) {
    throw new LocalError(`keys: ${(error as Error).message}`);
  }
}

/** With the group's authority, whoever shows a certificate for the super peer's name is that; with those of
 * the system, whoever is of the URL's host. */
function dial(url: string, group: string, name: string, events: WireEvents, authority?: string): Promise<Wire> {
  const uri = `antecede:${escape(group)}/${escape(name)}`;
  const check = (host: string, certificate: PeerCertificate): Error | undefined => {
    if (authority === undefined) return checkServerIdentity(host, certificate);
    const names = new X509Certificate(certificate.raw).subjectAltName?.split(", ") ?? [];
    return names.includes(`URI:${uri}`) ? undefined : new Error(`its certificate is for ${names.join(", ")}, not ${uri}`);
  };
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, {
      ca: authority,
      checkServerIdentity: check as never, // it passes the function on to node:tls
      maxPayload: MAX_BYTES,
      perMessageDeflate: false,
      followRedirects: false,
    });
    socket.on("open", () => resolve({ send: (data) => socket.send(data), close: () => socket.terminate() }));
    socket.on("message", (data: Buffer, isBinary: boolean) => {
      if (isBinary) events.receive(new Uint8Array(data.buffer, data.byteOffset, data.length));
      else events.closed("it sends text");
    });
    const end = (reason: string): void => {
      reject(new Error(reason));
      events.closed(reason);
    };
    socket.on("error", (error) => end(error.message));
    socket.on("close", (code) => end(`the connection ended (${code})`));
  });
}

/** Percent-encoded, all but letters, digits and `-._~`. */
const escape = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
