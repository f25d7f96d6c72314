// Reads the files of an index (explore/index.py says what is in them), each once, and keeps the latest.

export const SEND = 0;
export const RECEIVE = 1;
export const DELIVER = 2;
export const IMPOSSIBLE = 8;
export const NONE = 0xffffffff;
export const TILE = 1024;
const MESSAGES_IN_FILE = 65536;
const DELIVERIES_IN_FILE = 262144;
const MAX_FILES = 600;
const VERSION = 1;

/** Reads files from the folder that the page is in. */
export class Folder {
  /** @param {string} name @returns {Promise<ArrayBuffer>} */
  async read(name) {
    const answer = await fetch("data/" + name);
    if (!answer.ok) throw new Error(`${name} cannot be read (${answer.status})`);
    return answer.arrayBuffer();
  }
}

/** Files that come with the page, in one container. */
export class Embedded {
  /** @param {ArrayBuffer} container */
  constructor(container) {
    const size = new DataView(container).getUint32(0, true);
    this.names = JSON.parse(new TextDecoder().decode(new Uint8Array(container, 4, size)));
    this.container = container;
    this.begin = 4 + size;
  }

  /** Of base64 in the page itself. @param {string} text */
  static fromText(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return Embedded.unpack(bytes);
  }

  /** @param {BlobPart} bytes compressed by gzip */
  static async unpack(bytes) {
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Embedded(await new Response(unpacked).arrayBuffer());
  }

  /** @param {string} name @returns {Promise<ArrayBuffer>} */
  async read(name) {
    const place = this.names[name];
    if (!place) throw new Error(`${name} is not in this page`);
    return this.container.slice(this.begin + place[0], this.begin + place[0] + place[1]);
  }
}

/** A file of events, as columns. */
export class Chunk {
  /** @param {ArrayBuffer} data @param {number} number @param {number} size */
  constructor(data, number, size) {
    const count = data.byteLength / 36;
    this.count = count;
    this.first = number * size;
    this.time = new Float64Array(data, 0, count);
    this.laneKind = new Uint32Array(data, 8 * count, count);
    this.position = new Uint32Array(data, 12 * count, count);
    this.message = new Uint32Array(data, 16 * count, count);
    this.origin = new Uint32Array(data, 20 * count, count);
    this.sent = new Uint32Array(data, 24 * count, count);
    this.since = new Float32Array(data, 28 * count, count);
    this.held = new Float32Array(data, 32 * count, count);
  }
}

/**
 * @typedef {{kind: string, text: string, lane: number, event: number, message: number, path: number[], time: number}} Mark
 * @typedef {{title: string, run: string, origins: string[], kinds: string[], lane_events: number[], events: number,
 *   deliveries: number, messages: number, message_first: number[], has_ids: boolean, has_times?: boolean, start: string, duration: number,
 *   chunk: number, spans: number[], stride: number, checkpoints: number, peaks: number[], marks: Mark[],
 *   faults: number, note: string, made_by: string}} Index
 * @typedef {{number: number, lane: number, kind: number, position: number, message: number, origin: number,
 *   time: number, since: number, held: number}} Event
 */

/** The index and its files; what has been read is there at once (`has`), other files are promised. */
export class Data {
  /** @param {Folder | Embedded} source @param {Index} index */
  constructor(source, index) {
    this.source = source;
    this.index = index;
    this.lanes = index.lane_events.length;
    this.chunks = index.spans.length / 2;
    /** @type {Map<string, any>} */
    this.there = new Map();
    /** @type {Map<string, Promise<any>>} */
    this.asked = new Map();
  }

  /** @param {Folder | Embedded} source */
  static async open(source) {
    const index = JSON.parse(new TextDecoder().decode(await source.read("index.json")));
    if (index.version !== VERSION) throw new Error("it was prepared by another version of Antecede; do it again");
    return new Data(source, index);
  }

  /** @param {string} name @param {(data: ArrayBuffer) => any} decode @returns {Promise<any>} */
  get(name, decode) {
    if (this.there.has(name)) {
      const found = this.there.get(name);
      this.there.delete(name);
      this.there.set(name, found);
      return Promise.resolve(found);
    }
    let promise = this.asked.get(name);
    if (!promise) {
      promise = this.source.read(name).then((data) => {
        this.asked.delete(name);
        const found = decode(data);
        this.there.set(name, found);
        while (this.there.size > MAX_FILES) this.there.delete(this.there.keys().next().value);
        return found;
      });
      promise.catch(() => this.asked.delete(name));
      this.asked.set(name, promise);
    }
    return promise;
  }

  /** @param {string} name */
  has(name) {
    return this.there.get(name);
  }

  /** @param {number} number @returns {Promise<Chunk>} */
  chunk(number) {
    return this.get(`events-${number}.bin`, (data) => new Chunk(data, number, this.index.chunk));
  }

  /** @param {number} level @param {number} tile @returns {Promise<Uint16Array>} */
  tile(level, tile) {
    return this.get(`tile-${level}-${tile}.bin`, (data) => new Uint16Array(data));
  }

  /** @param {number} number @returns {Promise<Uint32Array>} */
  clock(number) {
    return this.get(`clock-${number}.bin`, (data) => new Uint32Array(data));
  }

  /** @param {number} lane @returns {Promise<Uint32Array>} */
  known(lane) {
    return this.get(`known-${lane}.bin`, (data) => new Uint32Array(data));
  }

  /** @returns {Promise<Uint32Array>} */
  counts() {
    return this.get("counts.bin", (data) => new Uint32Array(data));
  }

  /** @param {number} number @returns {Promise<Event>} */
  async event(number) {
    const chunk = await this.chunk(Math.floor(number / this.index.chunk));
    return eventOf(chunk, number - chunk.first);
  }

  /** @param {number} number */
  async messageFile(number) {
    return this.get(`messages-${number}.bin`, (data) => {
      const count = (data.byteLength - 4) / 16;
      return {
        seq: new BigInt64Array(data, 0, count),
        send: new Uint32Array(data, 8 * count, count),
        start: new Uint32Array(data, 12 * count, count + 1),
      };
    });
  }

  /** @param {number} message */
  async message(message) {
    const file = Math.floor(message / MESSAGES_IN_FILE);
    const { seq, send, start } = await this.messageFile(file);
    const place = message - file * MESSAGES_IN_FILE;
    const origin = this.originOf(message);
    const key = `${this.index.origins[origin]}:${seq[place]}`;
    const id = this.index.has_ids ? (await this.ids(file))[place] : "";
    return { number: message, origin, name: id || key, send: send[place], start: start[place], end: start[place + 1] };
  }

  /** @param {number} file @returns {Promise<string[]>} */
  ids(file) {
    return this.get(`ids-${file}.json`, (data) => JSON.parse(new TextDecoder().decode(data)));
  }

  /** @param {number} message */
  originOf(message) {
    return upperBound(this.index.message_first, message) - 1;
  }

  /** The events in which a message was delivered, at most `most`. @param {number} begin @param {number} end @param {number} most */
  async deliveries(begin, end, most) {
    const found = [];
    for (let at = begin; at < Math.min(end, begin + most); at++) {
      const file = Math.floor(at / DELIVERIES_IN_FILE);
      const numbers = await this.get(`deliveries-${file}.bin`, (data) => new Uint32Array(data));
      found.push(await this.event(numbers[at - file * DELIVERIES_IN_FILE]));
    }
    return found;
  }

  /** The number of the message that people call so; -1 if there is none. @param {string} text */
  async findMessage(text) {
    const colon = text.lastIndexOf(":");
    const origin = this.index.origins.indexOf(text.slice(0, colon));
    if (colon > 0 && origin >= 0 && /^[0-9]{1,18}$/.test(text.slice(colon + 1))) {
      const wanted = BigInt(text.slice(colon + 1));
      let low = this.index.message_first[origin];
      let high = this.index.message_first[origin + 1];
      while (low < high) {
        const middle = (low + high) >>> 1;
        const file = Math.floor(middle / MESSAGES_IN_FILE);
        const seq = (await this.messageFile(file)).seq[middle - file * MESSAGES_IN_FILE];
        if (seq === wanted) return middle;
        if (seq < wanted) low = middle + 1;
        else high = middle;
      }
    }
    return this.index.has_ids ? this.findId(text) : -1;
  }

  /** @param {string} text */
  async findId(text) {
    const count = this.index.message_first[this.index.message_first.length - 1];
    let partial = -1;
    for (let file = 0; file * MESSAGES_IN_FILE < count; file++) {
      const ids = await this.ids(file);
      const exact = ids.indexOf(text);
      if (exact >= 0) return file * MESSAGES_IN_FILE + exact;
      const inside = partial < 0 ? ids.findIndex((id) => id.includes(text)) : -1;
      if (inside >= 0) partial = file * MESSAGES_IN_FILE + inside;
    }
    return partial;
  }
}

/** @param {Chunk} chunk @param {number} at @returns {Event} */
export function eventOf(chunk, at) {
  return {
    number: chunk.first + at,
    lane: chunk.laneKind[at] >>> 4,
    kind: chunk.laneKind[at] & 15,
    position: chunk.position[at],
    message: chunk.message[at],
    origin: chunk.origin[at],
    time: chunk.time[at],
    since: chunk.since[at],
    held: chunk.held[at],
  };
}

/** The first place whose value is greater. @param {ArrayLike<number>} values @param {number} value */
export function upperBound(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
