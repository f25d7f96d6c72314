// msgpack, sets and bodies: which values round-trip, and which are refused.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as core from "antecede-client/core";

test("values of all sizes come back, and no others are read", () => {
  for (const size of [0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 65_535, 65_536]) {
    const map = new Map(Array.from({ length: size }, (_, i) => [i, true]));
    for (const value of ["ä".repeat(size), new Uint8Array(size), Array(size).fill(7), map, size]) {
      const data = core.encode(value);
      assert.deepEqual(core.decode(data), value);
      assert.throws(() => core.decode(data.subarray(0, -1)), { name: "RemoteError" });
      assert.throws(() => core.decode(Buffer.concat([data, Buffer.from([0])])), { name: "RemoteError" });
    }
  }
});

test("integers are exact", () => {
  const edges = [0n, 1n, 127n, 128n, 2n ** 53n - 1n, 2n ** 53n, 2n ** 63n - 1n, 2n ** 64n - 1n];
  for (const value of [...edges, -1n, -32n, -33n, -128n, -129n, -(2n ** 31n), -(2n ** 53n), -(2n ** 63n)]) {
    const back = core.decode(core.encode(value));
    assert.equal(BigInt(back), value);
    assert.equal(typeof back, Number.isSafeInteger(Number(value)) ? "number" : "bigint");
  }
  for (const value of [2n ** 64n, -(2n ** 63n) - 1n]) assert.throws(() => core.encode(value), RangeError);
});

test("sets of numbers come back", () => {
  for (const numbers of [[], [1], [4, 6], [7, 8], [9, 16, 17, 400]]) assert.deepEqual(core.readBits(core.writeBits(numbers)), numbers);
});

test("bodies come back as they were, or are refused with the place", () => {
  const there = [null, true, 0, -0, 1.5, 2 ** 53 - 1, 2n ** 70n, -(2n ** 64n), "ä\u0000\"", [], {}, [[{ a: [1n << 60n] }]], new Uint8Array([1])];
  for (const body of there) assert.deepEqual(core.decodeBody(core.unwrap(core.wrap(body, false, "pia"))), body);
  assert.deepEqual(core.decodeBody(core.unwrap(core.wrap({ __proto__: null, a: '"12345678901234567890' }, false, "p"))), {
    a: '"12345678901234567890',
  });
  let deep = 0;
  for (let i = 0; i < 200; i++) deep = [deep];
  const refused = { "body: NaN": NaN, "body.a: a value of type undefined": { a: undefined }, "body[1]: a value of type Date": [0, new Date()], "nested deeper": deep, "surrogate": "\ud800", "of type function": () => 1, "Uint8Array": { a: new Uint8Array(1) }, "more than 2048 bits": 2n ** 2048n, "8388608 at most": new Uint8Array(2 ** 23 + 1) };
  for (const [text, body] of Object.entries(refused))
    assert.throws(() => core.wrap(body, false, "pia"), (error) => error.name === "LocalError" && error.message.includes(text), text);
});

test("what is said about a body comes back", () => {
  const headers = { trace: "4bf9", key: new Uint8Array([1]) };
  const back = core.unwrap(core.wrap("x", false, "pia", 5, { contentType: "text/plain", headers }));
  assert.deepEqual(back.headers, headers);
  assert.deepEqual([back.time, back.contentType], [5, "text/plain"]);
  for (const wrong of [{ "antecede-request": "1 pia" }, { a: 1 }, { "": "x" }, { a: "x".repeat(9000) }])
    assert.throws(() => core.wrap("x", false, "pia", 5, { headers: wrong }), { name: "LocalError" });
  const reserved = core.encode([1, false, null, new Uint8Array(0), "pia", 5, "", new Map([["antecede-reply", "1 a:1"], ["a", 7], ["b", "c"]])]);
  assert.deepEqual(core.unwrap(reserved).headers, { b: "c" });
});

test("whatever bytes come, the only error is a RemoteError", () => {
  const vectors = ["wire-vectors.json", "phone-vectors.json"].map((name) =>
    JSON.parse(readFileSync(new URL(`../../../docs/${name}`, import.meta.url), "utf8")),
  );
  const seeds = vectors.flatMap((each) => [...each.frames, ...each.packets, ...each.payloads]).map((each) => Buffer.from(each.hex, "hex"));
  let state = 1;
  const random = (below) => (state = (state * 48271) % 2147483647) % below;
  for (let i = 0; i < 20_000; i++) {
    let data = seeds[random(seeds.length)];
    for (let times = 1 + random(3); times > 0; times--) {
      const at = random(data.length + 1);
      const how = random(4);
      if (how === 0) data = Buffer.concat([data.subarray(0, at), Buffer.from([random(256)]), data.subarray(at + 1)]);
      else if (how === 1) data = data.subarray(0, at);
      else if (how === 2) data = Buffer.concat([data.subarray(0, at), Buffer.from([[0xcf, 0xdd, 0xdf, 0xc6, 0xd3][random(5)]]), data.subarray(at)]);
      else data = Buffer.concat([data.subarray(0, at), seeds[random(seeds.length)].subarray(at)]);
    }
    for (const read of [core.decodeFrame, core.decodePacket, (each) => core.decodeBody(core.unwrap(each))]) {
      try {
        read(new Uint8Array(data));
      } catch (error) {
        if (error.name !== "RemoteError") throw error;
      }
    }
  }
});
