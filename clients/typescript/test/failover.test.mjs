// Failover to another super peer: by a move while the own one may come back, by a return otherwise.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { addressOf, Core, Failover } from "antecede-client/core";

const vectors = JSON.parse(readFileSync(new URL("../../../docs/phone-vectors.json", import.meta.url), "utf8"));
const packet = (name) =>
  new Uint8Array(Buffer.from(vectors.packets.find((each) => each.name === name).hex, "hex"));
const contacts = {
  sue: { name: "sue", nonce: new Uint8Array(0), at: "10.0.0.7:7000", isPhone: false },
  dana: { name: "dana", nonce: new Uint8Array(8), at: ":7000", isPhone: false },
};
const [sue, dana] = [addressOf(contacts.sue), addressOf(contacts.dana)];

/** A phone behind sue, with links to her and to dana, and what it decides. */
function behindSue() {
  const core = new Core("room", "pia");
  core.step({ kind: "opened", life: "first" });
  core.step({ kind: "attempt", nonce: new Uint8Array(8) });
  for (const contact of Object.values(contacts)) core.step({ kind: "link", mine: core.state.current, contact });
  const link = (theirs) => core.findLink(core.state.current, theirs);
  core.step({ kind: "asked", link: link(sue) });
  const failover = new Failover(core);
  const received = new Map();
  const receive = (from, name) => {
    received.set(from, (received.get(from) ?? 0) + 1);
    core.step({ kind: "packet", link: link(from), number: received.get(from), data: packet(name) });
  };
  receive(sue, "a slot");
  core.step({ kind: "started" });
  const check = (time, ...connected) => {
    const event = failover.check(new Set(connected), time);
    if (event !== null) core.step(event);
    return event?.kind ?? null;
  };
  return { core, failover, receive, check };
}

test("it asks another super peer when its own is out of reach, and moves if that comes back", () => {
  const { core, failover, receive, check } = behindSue();
  assert.equal(check(0, sue), null);
  assert.equal(check(100), null);
  assert.deepEqual([check(2_000), failover.seeks], [null, false]);
  assert.deepEqual([check(2_100), failover.seeks], [null, true]);
  assert.equal(check(2_200, dana), "move");
  assert.deepEqual([check(2_300, dana), failover.seeks], [null, false]);
  receive(dana, "a slot is reserved");
  assert.equal(check(4_000, dana), null);
  assert.equal(check(4_050, dana, sue), null);
  receive(sue, "released with this much");
  receive(dana, "the move is done");
  assert.deepEqual([core.phase, core.hub, core.isStarted], ["member", dana, true]);
  assert.equal(check(9_000, dana), null);
});

test("it returns elsewhere when its own does not come back", () => {
  const { core, receive, check } = behindSue();
  assert.equal(check(0), null);
  assert.equal(check(2_000, dana), "move");
  receive(dana, "a slot is reserved");
  assert.equal(check(3_999, dana), null);
  assert.equal(check(4_000, dana), "lost");
  assert.equal(core.phase, "removed");
});

test("it stays when the one that it has asked goes away", () => {
  const { core, check } = behindSue();
  assert.equal(check(0), null);
  assert.equal(check(2_000, dana), "move");
  assert.equal(check(2_100, sue), null);
  assert.equal(check(4_100, sue), "lost");
  assert.deepEqual([core.phase, core.hub, core.isMoving], ["member", sue, false]);
  assert.equal(core.current.mayMove(dana), false); // not before it has answered
});

test("a process that has stood still gives nobody up", () => {
  const { failover, check } = behindSue();
  assert.equal(check(0, dana), null);
  failover.excuse(60_000);
  assert.equal(check(60_200, dana), null);
  assert.equal(check(62_000, dana), "move");
});
