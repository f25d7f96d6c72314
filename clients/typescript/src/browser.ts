/** For browsers: WebSockets of the platform, and a store in IndexedDB. */

import { joinGroup, type Group } from "./group.js";
import { IndexedStore } from "./indexed-store.js";
import type { Platform, Wire, WireEvents } from "./platform.js";
import type { JoinOptions } from "./settings.js";

export * from "./exports.js";

/** Take part in a group as a phone, behind the first super peer that answers. */
export function join(group: string, options: JoinOptions): Promise<Group> {
  const token = options.token ?? "";
  const platform: Platform = {
    dial,
    openStore: (name, sync) => new IndexedStore(name, sync),
    token: typeof token === "string" ? () => token : token,
    watchNetwork,
  };
  return joinGroup(group, options, platform);
}

/** The browser verifies that the super peer is of the URL's host. */
function dial(url: string, _group: string, _name: string, events: WireEvents): Promise<Wire> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => resolve({ send: (data) => socket.send(data), close: () => socket.close() });
    socket.onmessage = (event) => {
      if (event.data instanceof ArrayBuffer) events.receive(new Uint8Array(event.data));
      else events.closed("it sends text");
    };
    socket.onclose = (event) => {
      const reason = `the connection ended (${event.code})`;
      reject(new Error(reason));
      events.closed(reason);
    };
  });
}

function watchNetwork(back: () => void): () => void {
  const shown = (): void => {
    if (document.visibilityState === "visible") back();
  };
  const isPage = typeof document !== "undefined"; // not a worker
  addEventListener("online", back);
  if (isPage) document.addEventListener("visibilitychange", shown);
  return () => {
    removeEventListener("online", back);
    if (isPage) document.removeEventListener("visibilitychange", shown);
  };
}
