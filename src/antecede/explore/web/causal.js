// The causal past and future of an event, as a count of events for each lane.
//
// Events are in a sequence in which causes come first (explore/layout.py). Reading it backwards from an event, a
// delivery that is in the past brings in all that its sender had done until the send. At a checkpoint, the clock of
// a lane of which everything is in the past is complete, and only messages that were in flight there have to be
// followed further back. The future is found in the same way, forwards; the checkpoints say in which part of the
// sequence each lane is reached.

import { DELIVER, NONE } from "./data.js";

/** Files that are read only to tint lanes exactly. */
const MAX_READ = 64;

/**
 * How many events of each lane happened before `event`, itself not included.
 * @param {import("./data.js").Data} data @param {import("./data.js").Event} event @returns {Promise<Uint32Array>}
 */
export async function causalPast(data, event) {
  const { chunk, stride } = data.index;
  const past = new Uint32Array(data.lanes);
  const complete = new Uint32Array(data.lanes);
  past[event.lane] = event.position;
  let end = event.number;
  if (event.kind === DELIVER && event.message !== NONE) {
    const own = await data.chunk(Math.floor(event.number / chunk));
    const sent = own.sent[event.number - own.first];
    if (sent !== NONE) past[event.origin] = Math.max(past[event.origin], sent + 1);
  }
  while (end > 0) {
    const begin = stride ? Math.floor((end - 1) / stride) * stride : 0;
    const first = Math.floor(begin / chunk);
    const last = Math.floor((end - 1) / chunk);
    const parts = await Promise.all(range(first, last + 1).map((number) => data.chunk(number)));
    for (let part = parts.length - 1; part >= 0; part--) {
      readBackwards(parts[part], Math.min(parts[part].count, end - parts[part].first), past);
    }
    if (begin === 0) break;
    const clock = await data.clock(begin / stride - 1);
    for (let lane = 0; lane < data.lanes; lane++) {
      const row = lane * data.lanes;
      if (past[lane] && past[lane] >= clock[row + lane]) {
        for (let other = 0; other < data.lanes; other++) {
          if (clock[row + other] > complete[other]) complete[other] = clock[row + other];
        }
      }
    }
    let open = false;
    for (let lane = 0; lane < data.lanes; lane++) {
      const isWhole = past[lane] >= clock[lane * data.lanes + lane];
      open = open || (!isWhole && past[lane] > complete[lane]);
      if (complete[lane] > past[lane]) past[lane] = complete[lane];
    }
    if (!open) break;
    end = begin;
  }
  return past;
}

/** @param {import("./data.js").Chunk} chunk @param {number} end @param {Uint32Array} past */
function readBackwards(chunk, end, past) {
  const { laneKind, position, origin, sent } = chunk;
  for (let at = end - 1; at >= 0; at--) {
    const both = laneKind[at];
    if ((both & 15) !== DELIVER || position[at] >= past[both >>> 4] || sent[at] === NONE) continue;
    if (sent[at] >= past[origin[at]]) past[origin[at]] = sent[at] + 1;
  }
}

/**
 * The position of the first event of each lane that happened after `event`; NONE if there is none. On its own lane
 * that is the event itself.
 * @param {import("./data.js").Data} data @param {import("./data.js").Event} event @returns {Promise<Uint32Array>}
 */
export async function causalFuture(data, event) {
  const { chunk, stride, checkpoints, events } = data.index;
  const future = new Uint32Array(data.lanes).fill(NONE);
  future[event.lane] = event.position;
  for (const part of stride ? await reachedIn(data, event) : [0]) {
    const begin = Math.max(event.number + 1, part * stride);
    const end = stride && part < checkpoints - 1 ? (part + 1) * stride : events;
    if (begin >= end) continue;
    const numbers = range(Math.floor(begin / chunk), Math.floor((end - 1) / chunk) + 1);
    const parts = await Promise.all(numbers.map((number) => data.chunk(number)));
    for (const each of parts) {
      const { laneKind, position, origin, sent } = each;
      for (let at = Math.max(0, begin - each.first); at < each.count; at++) {
        const lane = laneKind[at] >>> 4;
        if ((laneKind[at] & 15) !== DELIVER || sent[at] === NONE || position[at] >= future[lane]) continue;
        if (sent[at] >= future[origin[at]]) future[lane] = position[at];
      }
    }
  }
  return future;
}

/** Between which checkpoints lanes come to know of the event, in order. @param {import("./data.js").Data} data
 * @param {import("./data.js").Event} event @returns {Promise<number[]>} */
async function reachedIn(data, event) {
  const { stride, checkpoints } = data.index;
  const known = await data.known(event.lane);
  const parts = new Set();
  for (let lane = 0; lane < data.lanes; lane++) {
    let low = Math.floor(event.number / stride);
    let high = checkpoints;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (known[middle * data.lanes + lane] > event.position) high = middle;
      else low = middle + 1;
    }
    if (low < checkpoints) parts.add(low);
  }
  return [...parts].sort((one, other) => one - other);
}

/**
 * The time of the event with a position on each lane; where it is not read yet, the time of its part of the run.
 * @param {import("./data.js").Data} data @param {Uint32Array} positions @param {boolean} isLast
 */
export async function timesOf(data, positions, isLast) {
  const { chunk, stride, checkpoints, spans, duration } = data.index;
  const times = new Float64Array(data.lanes).fill(isLast ? -1 : Infinity);
  const counts = stride ? await data.counts() : null;
  const wanted = new Set();
  const targets = new Uint32Array(data.lanes).fill(NONE);
  for (let lane = 0; lane < data.lanes; lane++) {
    const position = isLast ? positions[lane] - 1 : positions[lane];
    if (position < 0 || position === NONE) continue;
    let part = 0;
    if (counts) {
      let high = checkpoints;
      while (part < high) {
        const middle = (part + high) >>> 1;
        if (counts[middle * data.lanes + lane] > position) high = middle;
        else part = middle + 1;
      }
    }
    const first = (part * stride) / chunk;
    const last = stride ? Math.min(data.chunks, ((part + 1) * stride) / chunk) : data.chunks;
    times[lane] = isLast ? spans[2 * first] : Math.min(duration, spans[2 * last - 1]);
    targets[lane] = position;
    for (let number = first; number < last; number++) wanted.add(number);
  }
  await Promise.all(
    [...wanted].slice(0, MAX_READ).map(async (number) => {
      const { laneKind, position, time } = await data.chunk(number);
      for (let at = 0; at < time.length; at++) {
        if (targets[laneKind[at] >>> 4] === position[at]) times[laneKind[at] >>> 4] = time[at];
      }
    }),
  );
  return times;
}

/** @param {number} begin @param {number} end */
function range(begin, end) {
  return Array.from({ length: Math.max(0, end - begin) }, (_, place) => begin + place);
}
