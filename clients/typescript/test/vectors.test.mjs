// The bytes are those of docs/wire-vectors.json and docs/phone-vectors.json, which the Python library writes.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as core from "antecede-client/core";

const docs = new URL("../../../docs/", import.meta.url);
const load = (name) => JSON.parse(readFileSync(new URL(name, docs), "utf8"));
const shared = load("wire-vectors.json");
const phone = load("phone-vectors.json");
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const hex = (data) => Buffer.from(data).toString("hex");

function shaped(shape) {
  if (Array.isArray(shape)) return shape.map(shaped);
  if (typeof shape !== "object" || shape === null) return shape;
  return "hex" in shape ? bytes(shape.hex) : new Map(shape.map.map(([key, value]) => [shaped(key), shaped(value)]));
}

for (const section of ["frames", "packets", "payloads"]) {
  for (const vector of shared[section]) {
    test(`${section}: ${vector.name}`, () => {
      const value = core.decode(bytes(vector.hex));
      assert.deepEqual(value, shaped(vector.shape));
      assert.equal(hex(core.encode(value)), vector.hex);
    });
  }
}

test("frames that phones share with members of fixed lists", () => {
  const kinds = ["refusal", "packets", "ack", "nack", "heartbeat", "pause"];
  for (const kind of kinds) {
    const { hex: data } = shared.frames.find((each) => each.name === kind);
    const frame = core.decodeFrame(bytes(data));
    assert.equal(frame.kind, kind);
    assert.equal(hex(core.encodeFrame(frame)), data);
  }
});

test("frames of phones", () => {
  const [call, answer, gone, presence] = phone.frames.map((each) => core.decodeFrame(bytes(each.hex)));
  for (const [greeting, vector] of [
    [call, phone.frames[0]],
    [answer, phone.frames[1]],
  ])
    assert.equal(hex(core.encodeFrame(greeting)), vector.hex);
  assert.equal(answer.you, core.addressOf(call.contact));
  assert.equal(gone.kind, "gone");
  assert.deepEqual(presence, { kind: "presence", come: ["pia", "tim"], gone: ["bo"] });
});

test("packets of phones come back", () => {
  const kinds = {
    PhoneWelcome: "welcome",
    SiteDownlink: "downlink",
    NumberAssignment: "assignment",
    StableNumber: "stable",
    PhoneRefused: "refused",
    MoveReady: "ready",
    PhoneReleased: "released",
  };
  for (const vector of phone.packets) {
    if (!(vector.kind in kinds)) {
      assert.throws(() => core.decodePacket(bytes(vector.hex)), { name: "RemoteError" });
      assert.equal(hex(core.encode(core.decode(bytes(vector.hex)))), vector.hex);
    } else assert.equal(core.decodePacket(bytes(vector.hex)).kind, kinds[vector.kind]);
  }
});

test("requests and replies", () => {
  const [request, reply] = phone.requests.map(({ hex: data }) => core.unwrap(bytes(data)));
  assert.deepEqual(request.reserved, { "antecede-request": "00112233aabbccdd bo" });
  assert.deepEqual(reply.reserved, { "antecede-reply": "00112233aabbccdd pia~1f2e3d4c:3" });
  for (const [i, body] of ["how much?", { price: 4 }].entries()) {
    const { author, time, hex: data } = phone.requests[i];
    assert.equal(hex(core.wrap(body, true, author, time, core.unwrap(bytes(data)))), data);
  }
});

test("payloads", () => {
  const bodies = [
    bytes("00ff"),
    "häi",
    { n: [1, -2.5, null, true, "é"] },
    { n: 2n ** 60n + 1n, text: "1234567890123456789" },
    "x",
    "y",
  ];
  assert.equal(phone.payloads.length, bodies.length);
  phone.payloads.forEach((vector, i) => {
    const envelope = core.unwrap(bytes(vector.hex));
    assert.deepEqual(core.decodeBody(envelope), bodies[i]);
    assert.equal(envelope.author, vector.author);
    assert.equal(envelope.time, vector.time);
    const { contentType } = envelope;
    assert.equal(contentType, vector["content type"]);
    assert.equal(hex(core.wrap(bodies[i], true, vector.author, vector.time, envelope)), vector.hex);
  });
});

test("addresses and origins", () => {
  for (const { name, nonce, phone: isPhone, address } of phone.addresses)
    assert.equal(core.addressOf({ name, nonce: bytes(nonce), at: "", isPhone }), BigInt(address));
  for (const { stream, slot, origin } of phone.origins)
    assert.equal(core.authorId(BigInt(stream), BigInt(slot)), BigInt(origin));
});

for (const name of ["story", "moves"]) {
  test(`${name}: a phone does in each step what the Python phone does`, () => {
    const addresses = Object.fromEntries(phone.addresses.map((each) => [each.name, BigInt(each.address)]));
    const none = { entries: [], admissions: new Map(), awaited: new Map() };
    let it = core.Phone.outside(addresses.pia, none);
    for (const [i, step] of phone[name].entries()) {
      if (step.do === "join") {
        if (i) it = core.Phone.outside(addresses.pia, it.makeBacklog());
        it.join(addresses[step.at]);
      } else if (step.do === "receive") it.receive(addresses[step.from], core.decodePacket(bytes(step.hex)));
      else if (step.do === "start") it.state.snapshot = null;
      else if (step.do === "broadcast") it.broadcast(bytes(step.hex), 1);
      else if (step.do === "deliver") {
        const { origin, seq } = it.deliver();
        assert.deepEqual([String(origin), seq], [step.origin, step.seq], `step ${i}`);
      } else if (step.do === "move") it.move(addresses[step.to]);
      else if (step.do === "leave") it.leave();
      else {
        assert.equal(step.do, "give up");
        it.giveUp(new Set(step.gone.map((each) => addresses[each])));
      }
      const sends = it.outbox.splice(0).map(([to, packet]) => [to, hex(packet)]);
      const expected = step.sends.map(([to, data]) => [addresses[to], data]);
      assert.deepEqual(sends, expected, `step ${i}: ${step.do}`);
      assert.equal(it.state.phase, step.phase, `step ${i}: ${step.do}`);
    }
  });
}

test("SHA-256 is that of the platform", () => {
  for (const size of [0, 1, 31, 55, 56, 63, 64, 65, 119, 120, 1000, 70_000]) {
    const data = new Uint8Array(size).map((_, i) => (i * 31 + size) & 255);
    assert.equal(hex(core.sha256(data)), createHash("sha256").update(data).digest("hex"));
  }
});

test("the chain value of the vectors", () => {
  const start = new Uint8Array(16);
  const { hex: data } = shared.frames.find((each) => each.name === "ack");
  const value = core.chain(core.chain(start, bytes("01")), bytes("0203"));
  assert.equal(hex(core.decodeFrame(bytes(data)).chain), hex(value));
});
