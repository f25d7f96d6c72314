// The store in a folder: only a last record torn by a crash is cut off.

import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { FileStore } from "../dist/file-store.js";

const folder = (t) => {
  const made = mkdtempSync(join(tmpdir(), "antecede-"));
  t.after(() => rmSync(made, { recursive: true }));
  return made;
};

async function contents(at) {
  const store = new FileStore(at, false);
  const found = await store.open();
  await store.close();
  return found;
}

test("a record that is torn at any byte is cut off, and those before are there", async (t) => {
  const at = folder(t);
  const store = new FileStore(at, true);
  await store.open();
  await store.append(["one", new Map([[1n, new Set([2])]])]);
  const whole = readFileSync(join(at, "log")).length;
  await store.append(["two"]);
  await store.close();
  const all = readFileSync(join(at, "log"));
  for (let end = all.length; end >= whole; end--) {
    writeFileSync(join(at, "log"), all.subarray(0, end));
    const { records } = await contents(at);
    assert.deepEqual(records.slice(0, 2), ["one", new Map([[1n, new Set([2])]])]);
    assert.equal(records.length, end === all.length ? 3 : 2);
  }
  const again = new FileStore(at, false);
  await again.open();
  await again.append(["three"]);
  await again.close();
  assert.equal((await contents(at)).records[2], "three");
});

test("a checkpoint takes the place of all before it, or of nothing", async (t) => {
  const at = folder(t);
  const store = new FileStore(at, false);
  await store.open();
  await store.append(["before"]);
  const state = { count: 1 };
  const replacing = store.replace(state);
  state.count = 2;
  await replacing;
  await store.append(["after"]);
  await store.close();
  appendFileSync(join(at, "log.new"), "half of a checkpoint");
  assert.deepEqual(await contents(at), { checkpoint: { count: 1 }, records: ["after"] });
  truncateSync(join(at, "log"), 0);
  assert.deepEqual(await contents(at), { checkpoint: undefined, records: [] });
});

test("two processes do not share a store", async (t) => {
  const at = folder(t);
  const store = new FileStore(at, false);
  await store.open();
  await assert.rejects(new FileStore(at, false).open(), { name: "LocalError", message: /in use in this process/ });
  await store.close();
  writeFileSync(join(at, "lock"), String(process.ppid));
  await assert.rejects(new FileStore(at, false).open(), { name: "LocalError", message: /in use by process/ });
  writeFileSync(join(at, "lock"), "4194305"); // no process has this number
  await contents(at);
});
