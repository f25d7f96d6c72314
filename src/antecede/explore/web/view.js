// What of the run is in sight, and its picture: density by lane and time, or every event and arrow.

import { DELIVER, NONE, RECEIVE, SEND, TILE, eventOf } from "./data.js";
import { Raster, blend, pack } from "./raster.js";

const MAX_EVENTS = 20000;
const MAX_ARROWS = 2000;
const AXIS = 26;
const MIN_LANE = 15;
const MARK = { message: 12 };

export const ORDER_ONLY = "no times: left to right is order only";

/** Whether the log has times; otherwise only the order of events is known. @param {import("./data.js").Data} data */
export function hasTimes(data) {
  return data.index.has_times !== false;
}

/** @typedef {{message: number, name: string, event: import("./data.js").Event, past: Uint32Array, future: Uint32Array,
 *   pastTime: Float64Array, futureTime: Float64Array, deliveries: import("./data.js").Event[]}} Selection */

export class View {
  /** @param {HTMLCanvasElement} canvas @param {import("./data.js").Data} data */
  constructor(canvas, data) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.data = data;
    /** @type {Selection | null} */
    this.selection = null;
    this.mark = -1;
    /** @type {[import("./data.js").Event, import("./data.js").Event][]} */
    this.path = [];
    this.frames = 0;
    this.missing = 0;
    /** What the last picture showed. */
    this.shown = { detail: false, events: 0, arrows: 0, sampled: 1, level: 0 };
    this.marksByEvent = new Map();
    data.index.marks.forEach((mark, place) => {
      if (mark.event >= 0 && mark.kind !== "missing") this.marksByEvent.set(mark.event, place);
    });
    this.readColours();
    this.t0 = 0;
    this.t1 = 1;
    this.top = 0;
    this.laneHeight = 0;
    this.resize();
    this.fit();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    /** @param {string} name @returns {import("./raster.js").Colour} */
    const colour = (name) => {
      let text = style.getPropertyValue(name).trim().replace("#", "");
      if (text.length === 3) text = [...text].map((digit) => digit + digit).join("");
      const number = parseInt(text, 16);
      return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
    };
    /** @type {Record<string, import("./raster.js").Colour>} */
    this.colours = {
      paper: colour("--paper"),
      ink: colour("--ink"),
      quiet: colour("--quiet"),
      rule: colour("--rule"),
      past: colour("--cause"),
      future: colour("--effect"),
      hold: colour("--hold"),
      fault: colour("--fault"),
      own: colour("--c2"),
    };
    const { paper, hold } = this.colours;
    this.colours.holding = /** @type {import("./raster.js").Colour} */ (
      hold.map((part, place) => Math.round(0.5 * part + 0.5 * paper[place]))
    );
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    const wasFitted = this.laneHeight > 0 && this.laneHeight <= this.fitHeight();
    this.scale = Math.min(2, window.devicePixelRatio || 1);
    this.width = Math.max(1, Math.round(box.width));
    this.height = Math.max(1, Math.round(box.height));
    this.gutter = this.width < 600 ? 64 : 120;
    this.plotWidth = Math.max(1, this.width - this.gutter);
    this.plotHeight = Math.max(1, this.height - AXIS);
    this.canvas.width = this.width * this.scale;
    this.canvas.height = this.height * this.scale;
    this.raster = new Raster(Math.round(this.plotWidth * this.scale), Math.round(this.plotHeight * this.scale));
    if (wasFitted) this.laneHeight = this.fitHeight();
    this.clampLanes();
  }

  fit() {
    this.t0 = -0.01 * this.data.index.duration;
    this.t1 = 1.01 * this.data.index.duration;
    this.top = 0;
    this.laneHeight = this.fitHeight();
  }

  fitHeight() {
    return Math.min(60, this.plotHeight / Math.max(1, this.data.lanes));
  }

  clampLanes() {
    this.laneHeight = Math.min(80, Math.max(this.fitHeight(), this.laneHeight));
    const most = Math.max(0, this.data.lanes - this.plotHeight / this.laneHeight);
    this.top = Math.min(most, Math.max(0, this.top));
  }

  /** @param {number} share of the width @param {number} [lanes] */
  pan(share, lanes = 0) {
    const span = this.t1 - this.t0;
    const { duration } = this.data.index;
    const move = Math.min(duration + 0.5 * span - this.t1, Math.max(-0.5 * span - this.t0, share * span));
    this.t0 += move;
    this.t1 += move;
    this.top += lanes;
    this.clampLanes();
  }

  /** @param {number} factor below 1 for closer @param {number} [share] where in the width */
  zoom(factor, share = 0.5) {
    const centre = this.t0 + share * (this.t1 - this.t0);
    const most = 1.05 * this.data.index.duration;
    const span = Math.min(most, Math.max(10, (this.t1 - this.t0) * factor));
    this.t0 = centre - share * span;
    this.t1 = this.t0 + span;
    this.pan(0);
  }

  /** @param {number} factor @param {number} [y] */
  zoomLanes(factor, y = this.plotHeight / 2) {
    const lane = this.top + y / this.laneHeight;
    this.laneHeight = Math.min(80, Math.max(this.fitHeight(), this.laneHeight * factor));
    this.top = lane - y / this.laneHeight;
    this.clampLanes();
  }

  /** Show a time and a lane; with a span, that much time, from the start if it is the whole run. @param {number} time @param {number} lane @param {number} [span] */
  centre(time, lane, span = this.t1 - this.t0) {
    const whole = span >= this.data.index.duration;
    this.t0 = whole ? -0.01 * this.data.index.duration : time - span / 2;
    this.t1 = whole ? this.t0 + span : time + span / 2;
    if (lane >= 0) {
      if (this.laneHeight < MIN_LANE) this.laneHeight = MIN_LANE;
      const rows = this.plotHeight / this.laneHeight;
      if (lane < this.top || lane + 1 > this.top + rows) this.top = lane - rows / 2;
    }
    this.clampLanes();
  }

  /** How much time to show so that about so many events are in sight. @param {number} events */
  spanOf(events) {
    return Math.min(1.02, events / this.data.index.events) * this.data.index.duration;
  }

  /** @param {number} time */
  x(time) {
    return ((time - this.t0) / (this.t1 - this.t0)) * this.plotWidth;
  }

  /** @param {number} lane */
  y(lane) {
    return (lane + 0.5 - this.top) * this.laneHeight;
  }

  /** @param {number} x of the canvas */
  timeAt(x) {
    return this.t0 + ((x - this.gutter) / this.plotWidth) * (this.t1 - this.t0);
  }

  /** @param {number} y of the canvas */
  laneAt(y) {
    const lane = Math.floor(this.top + (y - AXIS) / this.laneHeight);
    return Math.min(this.data.lanes - 1, Math.max(0, lane));
  }

  /** The files with events in sight. */
  chunksInSight() {
    const { spans } = this.data.index;
    const margin = 0.25 * (this.t1 - this.t0);
    const found = [];
    for (let number = 0; number < this.data.chunks; number++) {
      if (spans[2 * number] <= this.t1 + margin && spans[2 * number + 1] >= this.t0) found.push(number);
    }
    return found;
  }

  /** Draw what has been read; returns what is still to be read for it. @returns {Promise<any>[]} */
  draw() {
    this.frames++;
    const wanted = [];
    const inSight = this.chunksInSight();
    const share = (Math.min(this.t1, this.data.index.duration) - Math.max(0, this.t0)) / this.data.index.duration;
    const estimate = share * this.data.index.events;
    let detail = estimate <= MAX_EVENTS && inSight.length <= 4 + (2 * MAX_EVENTS) / this.data.index.chunk;
    const chunks = [];
    if (detail) {
      for (const number of inSight) {
        const chunk = this.data.has(`events-${number}.bin`);
        if (chunk) chunks.push(chunk);
        else wanted.push(this.data.chunk(number));
      }
      detail = wanted.length === 0;
    }
    this.raster.clear(this.colours.paper);
    this.shown = { detail, events: 0, arrows: 0, sampled: 1, level: 0 };
    this.drawRegions();
    if (detail) this.drawEvents(chunks);
    else wanted.push(...this.drawDensity());
    this.drawSelected();
    this.drawPath();
    this.drawMarks();
    this.context.putImageData(this.raster.image, this.gutter * this.scale, AXIS * this.scale);
    this.drawFrame();
    this.missing = wanted.length;
    return wanted;
  }

  firstLane() {
    return Math.max(0, Math.floor(this.top));
  }

  lastLane() {
    return Math.min(this.data.lanes, Math.ceil(this.top + this.plotHeight / this.laneHeight));
  }

  /** Past and future of the selected message, as tinted lanes. */
  drawRegions() {
    const { scale, raster, colours } = this;
    const height = Math.max(1, this.laneHeight * scale);
    for (let lane = this.firstLane(); lane < this.lastLane(); lane++) {
      const top = (this.y(lane) - this.laneHeight / 2) * scale;
      if (this.selection) {
        const { pastTime, futureTime } = this.selection;
        const past = this.x(pastTime[lane]) * scale;
        if (pastTime[lane] >= 0 && past > 0) raster.rect(0, top, past, height, colours.past, 0.15);
        const future = Math.max(0, this.x(futureTime[lane]) * scale);
        if (future < raster.width) raster.rect(future, top, raster.width - future, height, colours.future, 0.15);
      }
      if (this.laneHeight >= 6) {
        raster.rect(0, this.y(lane) * scale, raster.width, Math.max(1, scale), colours.rule, 1);
      }
    }
  }

  /** @returns {Promise<any>[]} */
  drawDensity() {
    const { data, raster, scale } = this;
    const { peaks, duration } = data.index;
    const buckets = (duration / (this.t1 - this.t0)) * raster.width;
    let level = 0;
    while (level < peaks.length - 1 && TILE << level < buckets) level++;
    const wanted = [];
    const first = Math.max(0, Math.floor((this.t0 / duration) * (1 << level)));
    const last = Math.min((1 << level) - 1, Math.floor((this.t1 / duration) * (1 << level)));
    for (let tile = first; tile <= last; tile++) {
      if (!data.has(`tile-${level}-${tile}.bin`)) wanted.push(data.tile(level, tile));
    }
    while (level > 0 && !this.hasTiles(level)) level--;
    if (!this.hasTiles(level)) return wanted.length ? wanted : [data.tile(0, 0)];
    this.shown.level = level;
    const count = TILE << level;
    const columns = new Int32Array(raster.width + 1);
    for (let x = 0; x <= raster.width; x++) {
      const time = this.t0 + (x / raster.width) * (this.t1 - this.t0);
      columns[x] = Math.floor((time / duration) * count);
    }
    const tiles = [];
    for (let tile = 0; tile < 1 << level; tile++) tiles.push(data.has(`tile-${level}-${tile}.bin`));
    const strength = 1 / Math.max(1, peaks[level]);
    const height = Math.max(1, Math.round(this.laneHeight * scale * (this.laneHeight > 4 ? 0.78 : 1)));
    for (let lane = this.firstLane(); lane < this.lastLane(); lane++) {
      this.densityRow(lane, tiles, columns, count, strength);
      const top = Math.round(this.y(lane) * scale - height / 2);
      for (let y = Math.max(0, top); y < Math.min(raster.height, top + height); y++) {
        const begin = y * raster.width;
        for (let x = 0; x < raster.width; x++) if (raster.row[x]) raster.pixels[begin + x] = raster.row[x];
      }
    }
    return wanted;
  }

  /** @param {number} level */
  hasTiles(level) {
    const { duration } = this.data.index;
    const first = Math.max(0, Math.floor((this.t0 / duration) * (1 << level)));
    const last = Math.min((1 << level) - 1, Math.floor((this.t1 / duration) * (1 << level)));
    for (let tile = first; tile <= last; tile++) if (!this.data.has(`tile-${level}-${tile}.bin`)) return false;
    return true;
  }

  /** The colours of one lane. @param {number} lane @param {Uint16Array[]} tiles @param {Int32Array} columns
   * @param {number} count @param {number} strength */
  densityRow(lane, tiles, columns, count, strength) {
    const { raster, colours, selection } = this;
    const [paper, past, future] = [pack(colours.paper), pack(colours.past), pack(colours.future)];
    const neither = pack(colours.quiet);
    const span = this.t1 - this.t0;
    const pastTime = selection ? selection.pastTime[lane] : -1;
    const futureTime = selection ? selection.futureTime[lane] : Infinity;
    const pastEnd = pastTime < 0 ? -1 : ((pastTime - this.t0) / span) * raster.width;
    const futureBegin = ((futureTime - this.t0) / span) * raster.width;
    let before = -1;
    let value = 0;
    for (let x = 0; x < raster.width; x++) {
      const begin = columns[x];
      if (begin < 0 || begin >= count) {
        raster.row[x] = 0;
        continue;
      }
      if (begin !== before) {
        value = tiles[begin >> 10][lane * TILE + (begin & 1023)];
        const end = Math.min(columns[x + 1], begin + 4, count);
        for (let bucket = begin + 1; bucket < end; bucket++) {
          value = Math.max(value, tiles[bucket >> 10][lane * TILE + (bucket & 1023)]);
        }
        before = begin;
      }
      if (!value) {
        raster.row[x] = 0;
        continue;
      }
      const colour = x <= pastEnd ? past : x >= futureBegin ? future : neither;
      const share = 0.15 + 0.85 * Math.sqrt(Math.min(1, value * strength));
      raster.row[x] = blend(paper, colour, (share * 256) | 0);
    }
  }

  /** @param {import("./data.js").Chunk[]} chunks */
  drawEvents(chunks) {
    const { raster, scale, colours } = this;
    let arrows = 0;
    let visible = 0;
    const [firstLane, lastLane] = [this.firstLane(), this.lastLane()];
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.count; at++) {
        const time = chunk.time[at];
        if (time < this.t0) continue;
        const lane = chunk.laneKind[at] >>> 4;
        if (time <= this.t1 && lane >= firstLane && lane < lastLane) visible++;
        if ((chunk.laneKind[at] & 15) === DELIVER && time - chunk.since[at] <= this.t1) arrows++;
      }
    }
    const sampled = Math.max(1, Math.ceil(arrows / MAX_ARROWS));
    this.shown.events = visible;
    this.shown.sampled = sampled;
    const faint = arrows / sampled > 400 ? 0.3 : 0.55;
    for (const chunk of chunks) this.drawHolds(chunk);
    for (const chunk of chunks) this.drawArrows(chunk, sampled, faint);
    const perLane = visible / Math.max(1, lastLane - firstLane);
    const room = this.plotWidth / Math.max(1, perLane);
    const radius = Math.max(0.8, Math.min(5, room / 3, this.laneHeight / 3.2)) * scale;
    for (const chunk of chunks) this.drawDots(chunk, radius, colours, raster);
  }

  /** While a lane holds something there is a bar, one however much it holds. @param {import("./data.js").Chunk} chunk */
  drawHolds(chunk) {
    const { raster, scale, colours } = this;
    const bar = Math.max(1, Math.min(5, this.laneHeight * 0.3)) * scale;
    for (let at = 0; at < chunk.count; at++) {
      const held = chunk.held[at];
      const time = chunk.time[at];
      if (!(held > 0) || time < this.t0 || time - held > this.t1) continue;
      const y = this.y(chunk.laneKind[at] >>> 4) * scale;
      const begin = this.x(time - held) * scale;
      const width = this.x(time) * scale - begin;
      if (width >= 0.7) raster.rect(begin, y - bar / 2, width, bar, colours.holding, 1);
    }
  }

  /** @param {import("./data.js").Chunk} chunk @param {number} sampled @param {number} faint */
  drawArrows(chunk, sampled, faint) {
    const { raster, scale, colours } = this;
    const right = raster.width;
    for (let at = 0; at < chunk.count; at++) {
      if ((chunk.laneKind[at] & 7) !== DELIVER || chunk.sent[at] === NONE) continue;
      const time = chunk.time[at];
      const sent = time - chunk.since[at];
      if (time < this.t0 || sent > this.t1 || (sampled > 1 && chunk.message[at] % sampled)) continue;
      const lane = chunk.laneKind[at] >>> 4;
      if (lane === chunk.origin[at]) continue;
      const y0 = this.y(chunk.origin[at]) * scale;
      const y1 = this.y(lane) * scale;
      if ((y0 < 0 && y1 < 0) || (y0 > raster.height && y1 > raster.height)) continue;
      const colour = this.colourOf(chunk.origin[at], chunk.sent[at], colours.quiet);
      const x0 = this.x(sent) * scale;
      const x1 = this.x(time) * scale;
      if (x1 < 0 || x0 > right) continue;
      raster.line(x0, y0, x1, y1, colour, colour === colours.quiet ? faint : faint + 0.15);
      this.shown.arrows++;
    }
  }

  /** @param {import("./data.js").Chunk} chunk @param {number} radius @param {any} colours @param {Raster} raster */
  drawDots(chunk, radius, colours, raster) {
    const { scale } = this;
    const bar = Math.max(1, Math.min(7, this.laneHeight * 0.4)) * scale;
    for (let at = 0; at < chunk.count; at++) {
      const time = chunk.time[at];
      if (time < this.t0 || time > this.t1) continue;
      const lane = chunk.laneKind[at] >>> 4;
      const y = this.y(lane) * scale;
      if (y < -radius || y > raster.height + radius) continue;
      const x = this.x(time) * scale;
      const kind = chunk.laneKind[at] & 7;
      const colour = this.colourOf(lane, chunk.position[at], kind === RECEIVE ? colours.hold : colours.ink);
      if (radius < 1.6) raster.rect(x, y - bar / 2, 1, bar, colour, 0.8);
      else if (kind === SEND) {
        raster.dot(x, y, radius, colours.paper);
        raster.dot(x, y, radius, colour, Math.max(1, radius * 0.4));
      } else if (kind === DELIVER) raster.dot(x, y, radius * 0.85, colour);
      else raster.rect(x - radius, y - radius, 2 * radius, 2 * radius, colour, 1);
    }
  }

  /** The colour of an event by its order to the selected message. @param {number} lane @param {number} position
   * @param {import("./raster.js").Colour} otherwise */
  colourOf(lane, position, otherwise) {
    const { selection, colours } = this;
    if (!selection) return otherwise;
    if (position < selection.past[lane]) return colours.past;
    if (position >= selection.future[lane]) return colours.future;
    return colours.quiet;
  }

  drawSelected() {
    const { selection, raster, scale, colours } = this;
    if (!selection) return;
    const { event, deliveries } = selection;
    for (const each of deliveries) {
      const x0 = this.x(event.time) * scale;
      const x1 = this.x(each.time) * scale;
      if (Math.max(x0, x1) < 0 || Math.min(x0, x1) > raster.width) continue;
      for (const shift of [-0.6, 0, 0.6]) {
        raster.line(x0, this.y(event.lane) * scale + shift, x1, this.y(each.lane) * scale + shift, colours.own, 0.9);
      }
      if (each.held > 0) {
        const begin = this.x(each.time - each.held) * scale;
        const bar = Math.max(3, Math.min(9, this.laneHeight * 0.5)) * scale;
        raster.rect(begin, this.y(each.lane) * scale - bar / 2, x1 - begin, bar, colours.hold, 1);
      }
      raster.dot(x1, this.y(each.lane) * scale, 4 * scale, colours.own);
    }
    raster.dot(this.x(event.time) * scale, this.y(event.lane) * scale, 7 * scale, colours.paper);
    raster.dot(this.x(event.time) * scale, this.y(event.lane) * scale, 6 * scale, colours.own);
  }

  /** The messages from the cause to the effect of the violation that is shown. */
  drawPath() {
    const { raster, scale, colours } = this;
    for (const [from, to] of this.path) {
      const [x0, y0] = [this.x(from.time) * scale, this.y(from.lane) * scale];
      const [x1, y1] = [this.x(to.time) * scale, this.y(to.lane) * scale];
      if (Math.max(x0, x1) < 0 || Math.min(x0, x1) > raster.width) continue;
      for (const shift of [-1, 0, 1]) raster.line(x0, y0 + shift, x1, y1 + shift, colours.fault, 0.9);
      raster.dot(x0, y0, 6 * scale, colours.fault);
    }
  }

  drawMarks() {
    const { raster, scale, colours } = this;
    this.data.index.marks.forEach((mark, place) => {
      if (mark.event < 0 || mark.time < this.t0 || mark.time > this.t1 || mark.lane < 0) return;
      const x = this.x(mark.time) * scale;
      const y = this.y(mark.lane) * scale;
      const size = (place === this.mark ? 9 : Math.max(3, Math.min(6, this.laneHeight / 2))) * scale;
      if (y < 0 || y > raster.height) return;
      raster.dot(x, y, size, colours.fault, 2 * scale);
      if (size > 4 * scale || place === this.mark) {
        raster.line(x - size / 2, y - size / 2, x + size / 2, y + size / 2, colours.fault, 1);
        raster.line(x - size / 2, y + size / 2, x + size / 2, y - size / 2, colours.fault, 1);
      }
    });
  }

  /** Names of lanes and the scale of time. */
  drawFrame() {
    const { context, colours, gutter, width, height } = this;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.fillStyle = css(colours.paper);
    context.fillRect(0, 0, width, AXIS);
    context.fillRect(0, 0, gutter, height);
    context.font = "12px system-ui, -apple-system, 'Segoe UI', sans-serif";
    context.textBaseline = "middle";
    this.drawAxis();
    const every = Math.max(1, Math.ceil(MIN_LANE / this.laneHeight));
    context.save();
    context.beginPath();
    context.rect(0, AXIS - 6, gutter - 4, height);
    context.clip();
    context.textAlign = "left";
    for (let lane = this.firstLane(); lane < this.lastLane(); lane++) {
      if (lane % every) continue;
      const isOwn = this.selection !== null && this.selection.event.lane === lane;
      context.fillStyle = css(isOwn ? colours.own : colours.ink);
      context.fillText(shorten(context, this.data.index.origins[lane], gutter - 12), 6, AXIS + this.y(lane));
    }
    context.restore();
    context.fillStyle = css(colours.rule);
    context.fillRect(gutter - 1, 0, 1, height);
    context.fillRect(gutter, AXIS - 1, width, 1);
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  drawAxis() {
    const { context, colours, gutter } = this;
    if (!hasTimes(this.data)) {
      context.textAlign = "left";
      context.fillStyle = css(colours.quiet);
      context.fillText(shorten(context, ORDER_ONLY, this.plotWidth - 16), gutter + 8, AXIS / 2);
      return;
    }
    const about = ((this.t1 - this.t0) / this.plotWidth) * 110;
    const power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= about) || 10 * power;
    context.textAlign = "center";
    context.fillStyle = css(colours.quiet);
    for (let time = Math.ceil(this.t0 / step) * step; time <= this.t1; time += step) {
      const x = gutter + this.x(time);
      if (x < gutter + 24 || x > this.width - 24) continue;
      context.fillText(showTime(time, step), x, AXIS / 2);
      context.fillRect(x, AXIS - 5, 1, 5);
    }
  }

  /** The event nearest to a point, among those that are read; null if none is near. @param {number} x @param {number} y
   * @param {number} [reach] */
  nearest(x, y, reach = MARK.message) {
    let best = null;
    let least = reach * reach;
    for (const number of this.chunksInSight()) {
      const chunk = this.data.has(`events-${number}.bin`);
      if (!chunk) continue;
      for (let at = 0; at < chunk.count; at++) {
        const dx = this.gutter + this.x(chunk.time[at]) - x;
        if (dx * dx >= least) continue;
        const dy = AXIS + this.y(chunk.laneKind[at] >>> 4) - y;
        if (dx * dx + dy * dy < least && chunk.message[at] !== NONE) {
          least = dx * dx + dy * dy;
          best = eventOf(chunk, at);
        }
      }
    }
    return best;
  }
}

/** @param {import("./raster.js").Colour} colour */
function css(colour) {
  return `rgb(${colour.join(",")})`;
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
function shorten(context, text, width) {
  let shown = text.length > 60 ? text.slice(0, 60) + "…" : text;
  while (shown.length > 2 && context.measureText(shown).width > width) shown = shown.slice(0, -2) + "…";
  return shown;
}

/** A time since the start, as exact as a step needs. @param {number} time in ns @param {number} [step] */
export function showTime(time, step = Math.abs(time) / 1000) {
  if (time === 0) return "0 s";
  const units = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
    [1, "ns"],
  ];
  const [size, unit] = /** @type {[number, string]} */ (
    units.find(([each]) => Math.abs(time) >= Number(each)) || units[3]
  );
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / Math.max(step, 1e-9)))));
  return `${(time / size).toFixed(digits)} ${unit}`;
}

/** The time in nanoseconds that a text such as "12.5 s" or "800ms" means; null if it means none. @param {string} text */
export function parseTime(text) {
  const match = /^\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|m|min|h)\s*$/.exec(text);
  if (!match) return null;
  const units = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, m: 60e9, min: 60e9, h: 3600e9 };
  return Number(match[1]) * units[/** @type {keyof typeof units} */ (match[2])];
}
