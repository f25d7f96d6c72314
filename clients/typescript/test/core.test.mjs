// A replay, from the beginning or from any checkpoint, reproduces the state and the packets.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { deserialize, serialize } from "node:v8";

import { addressOf, Core } from "antecede-client/core";

const vectors = JSON.parse(readFileSync(new URL("../../../docs/phone-vectors.json", import.meta.url), "utf8"));
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const sue = { name: "sue", nonce: new Uint8Array(0), at: "10.0.0.7:7000", isPhone: false };
const dana = { name: "dana", nonce: new Uint8Array(8), at: ":7000", isPhone: false };
const contacts = { sue, dana };
const copy = (value) => deserialize(serialize(value));

/** A story of the vectors, as events of a core whose application always reads. */
function* events(core, story = vectors.story) {
  yield { kind: "opened", life: "first" };
  let lives = 0;
  const link = (name) => core.findLink(core.state.current, addressOf(contacts[name]));
  for (const step of story) {
    if (step.do === "join") {
      yield { kind: "attempt", nonce: new Uint8Array(8).fill(lives++) };
      for (const contact of story === vectors.story ? [sue] : [sue, dana]) {
        yield { kind: "link", mine: core.state.current, contact };
        yield { kind: "met", link: link(contact.name), lineage: [["91ab", 0]] };
      }
      yield { kind: "asked", link: link(step.at) };
    } else if (step.do === "receive") {
      const from = link(step.from);
      yield { kind: "packet", link: from, number: core.state.links.get(from).received + 1, data: bytes(step.hex) };
    } else if (step.do === "start") yield { kind: "started" };
    else if (step.do === "broadcast") yield { kind: "broadcast", payload: bytes(step.hex), at: 7 };
    else if (step.do === "deliver") yield { kind: "take" };
    else if (step.do === "move") yield { kind: "move", link: link(step.to) };
    else if (step.do === "give up")
      yield { kind: "lost", addresses: step.gone.map((name) => addressOf(contacts[name])) };
    else yield { kind: "leave" };
  }
}

for (const name of ["story", "moves"]) {
  test(`${name}: a replay gives what was, from any checkpoint`, () => {
    const core = new Core("room", "pia");
    const log = [];
    const states = [];
    for (const event of events(core, vectors[name])) {
      core.step(event);
      const batch = core.takeBatch(false, () => true);
      core.persisted(batch);
      log.push(...copy(batch.records));
      states.push(copy(core.state));
    }
    assert.equal(core.phase, name === "story" ? "ended" : "member");
    assert.equal(log.length, states.length);
    assert.deepEqual(new Core("room", "pia", undefined, copy(log)).state, core.state);
    for (const [at, state] of states.entries()) {
      const again = new Core("room", "pia", copy(state), copy(log.slice(at + 1)));
      assert.deepEqual(again.state, core.state);
      for (const [link, { outbox }] of core.state.links) assert.equal(again.mark(link).sent, outbox.last);
    }
  });
}

test("what is not durable is neither sent nor acknowledged", () => {
  const core = new Core("room", "pia");
  const source = events(core);
  for (let event; event?.kind !== "asked"; core.step(event)) event = source.next().value;
  assert.deepEqual([core.mark(0).sent, core.state.links.get(0).outbox.last], [0, 1]);
  const batch = core.takeBatch(false, () => true);
  core.step(source.next().value);
  core.persisted(batch);
  assert.deepEqual([core.mark(0).sent, core.mark(0).received, core.state.links.get(0).received], [1, 0, 1]);
  core.persisted(core.takeBatch(false, () => true));
  assert.equal(core.mark(0).received, 1);
});

test("former addresses go with a checkpoint when all that was sent from them is acknowledged", () => {
  const core = new Core("room", "pia");
  for (const event of events(core)) core.step(event);
  core.takeBatch(true, () => false);
  assert.equal(core.state.phones.size, 3);
  for (const [link, { outbox }] of core.state.links) {
    const last = outbox.packets.get(outbox.last);
    core.outbox(link).ack(outbox.last, last.chain);
  }
  core.takeBatch(true, () => false);
  assert.deepEqual([...core.state.phones.keys()], [core.state.current]);
  assert.equal(core.state.links.size, 1);
});

test("a store of somebody else, or of a later version, is refused", () => {
  const { state } = new Core("room", "pia");
  assert.throws(() => new Core("room", "tim", copy(state)), { name: "LocalError", message: /is of pia in group 'room'/ });
  assert.throws(() => new Core("hall", "pia", copy(state)), { name: "LocalError" });
  assert.throws(() => new Core("room", "pia", { ...state, format: 2 }), { name: "StoreError" });
});

test("an acknowledgement of other packets is a fork", () => {
  const core = new Core("room", "pia");
  for (const event of events(core)) {
    core.step(event);
    if (event.kind === "asked") break;
  }
  assert.throws(() => core.outbox(0).ack(1, new Uint8Array(16)), { name: "ForkError" });
  assert.throws(() => core.outbox(0).ack(2, new Uint8Array(16)), { name: "ForkError", message: /an older one/ });
  assert.equal(addressOf(sue), core.state.links.get(0).theirs);
});
