// The store in IndexedDB, with an implementation of that in memory.

import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { test } from "node:test";

import "fake-indexeddb/auto";
import { IndexedStore } from "../dist/indexed-store.js";

globalThis.crypto ??= webcrypto; // not a global in Node 18

test("what was written is there, and a checkpoint takes its place", async () => {
  const store = new IndexedStore("one", true);
  assert.deepEqual(await store.open(), { checkpoint: undefined, records: [] });
  await store.append([{ kind: "take" }, { kind: "packet", data: new Uint8Array([1]), origin: 2n ** 62n }]);
  await store.append([new Map([[1n, new Set([2])]])]);
  assert.ok(store.size > 0);
  await store.close();
  const again = new IndexedStore("one", true);
  const { records } = await again.open();
  assert.deepEqual(records[1], { kind: "packet", data: new Uint8Array([1]), origin: 2n ** 62n });
  assert.deepEqual(records[2], new Map([[1n, new Set([2])]]));
  const state = { count: 1 };
  const replacing = again.replace(state);
  state.count = 2; // the store has copied it
  await replacing;
  await again.append(["after"]);
  await again.close();
  assert.deepEqual(await new IndexedStore("one", true).open(), { checkpoint: { count: 1 }, records: ["after"] });
});

test("who has opened it first can write no more once somebody else has", async () => {
  const first = new IndexedStore("two", true);
  await first.open();
  const second = new IndexedStore("two", true);
  await second.open();
  await assert.rejects(first.append(["lost"]), { name: "StoreError", message: /another tab/ });
  await assert.rejects(first.replace("lost"), { name: "StoreError" });
  await second.append(["kept"]);
  assert.deepEqual((await new IndexedStore("two", true).open()).records, ["kept"]);
});
