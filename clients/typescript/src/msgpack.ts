/**
 * The part of msgpack that the wire format uses: nil, booleans, integers, text, bytes, arrays and maps.
 *
 * Integers that a number does not hold exactly are bigints, in both directions. Maps are `Map`s, since their
 * keys may be integers. Libraries exist; the well-kept one is four times this size, and turns maps into
 * objects, whose keys are text.
 */

import { fromUtf8, utf8 } from "./bytes.js";
import { RemoteError } from "./errors.js";

export type Value = null | boolean | number | bigint | string | Uint8Array | Value[] | Map<Value, Value>;

const MAX_DEPTH = 100;

/** A value as bytes, in its shortest form. */
export function encode(value: Value): Uint8Array {
  const writer = new Writer();
  writer.write(value);
  return writer.take();
}

class Writer {
  private data = new Uint8Array(256);
  private view = new DataView(this.data.buffer);
  private size = 0;

  take(): Uint8Array {
    return this.data.slice(0, this.size);
  }

  write(value: Value): void {
    if (value === null) this.byte(0xc0);
    else if (typeof value === "boolean") this.byte(value ? 0xc3 : 0xc2);
    else if (typeof value === "number" || typeof value === "bigint") this.integer(BigInt(value));
    else if (typeof value === "string") {
      const data = utf8(value);
      this.head(data.length, 0xa0, 32, 0xd9, 0);
      this.bytes(data);
    } else if (value instanceof Uint8Array) {
      this.head(value.length, 0, 0, 0xc4, 0);
      this.bytes(value);
    } else if (Array.isArray(value)) {
      this.head(value.length, 0x90, 16, 0xdb, 1);
      for (const each of value) this.write(each);
    } else {
      this.head(value.size, 0x80, 16, 0xdd, 1);
      for (const [key, each] of value) {
        this.write(key);
        this.write(each);
      }
    }
  }

  private integer(value: bigint): void {
    if (value < 0n) {
      if (value >= -32n) return this.byte(Number(value) & 0xff);
      const size = [7n, 15n, 31n, 63n].findIndex((bits) => value >= -(1n << bits));
      if (size < 0) throw new RangeError(`${value} does not fit in 64 bits`);
      this.byte(0xd0 + size);
      return this.big(BigInt.asUintN(64, value), 1 << size);
    }
    if (value < 128n) return this.byte(Number(value));
    const size = [8n, 16n, 32n, 64n].findIndex((bits) => value < 1n << bits);
    if (size < 0) throw new RangeError(`${value} does not fit in 64 bits`);
    this.byte(0xcc + size);
    this.big(value, 1 << size);
  }

  /** The lowest bytes of a number, the most significant first. */
  private big(value: bigint, bytes: number): void {
    this.reserve(8);
    this.view.setBigUint64(this.size, value << BigInt(64 - 8 * bytes));
    this.size += bytes;
  }

  private head(length: number, short: number, below: number, long: number, least: number): void {
    if (length < below) return this.byte(short | length);
    let size = least;
    while (length >= 2 ** (8 << size)) size++;
    this.byte(long + size);
    this.big(BigInt(length), 1 << size);
  }

  private byte(value: number): void {
    this.reserve(1);
    this.data[this.size++] = value;
  }

  private bytes(data: Uint8Array): void {
    this.reserve(data.length);
    this.data.set(data, this.size);
    this.size += data.length;
  }

  private reserve(count: number): void {
    if (this.size + count <= this.data.length) return;
    const larger = new Uint8Array(Math.max(2 * this.data.length, this.size + count));
    larger.set(this.data);
    this.data = larger;
    this.view = new DataView(larger.buffer);
  }
}

/** The value in bytes from the wire; whatever they are, the only error is a `RemoteError`. */
export function decode(data: Uint8Array): Value {
  const reader = new Reader(data);
  try {
    const value = reader.read(0);
    if (reader.at === data.length) return value;
  } catch (error) {
    if (error instanceof RemoteError) throw error;
    throw new RemoteError("text that is not UTF-8");
  }
  throw new RemoteError("bytes after the end of a value");
}

class Reader {
  at = 0;
  private readonly view: DataView;

  constructor(private readonly data: Uint8Array) {
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  }

  read(depth: number): Value {
    if (depth > MAX_DEPTH) throw new RemoteError("a value that is nested too deeply");
    const tag = this.data[this.skip(1)];
    if (tag < 0x80) return tag;
    if (tag >= 0xe0) return tag - 256;
    if (tag < 0x90) return this.map(tag & 15, depth);
    if (tag < 0xa0) return this.array(tag & 15, depth);
    if (tag < 0xc0) return this.text(tag & 31);
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
      case 0xc3:
        return tag === 0xc3;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.bytes(this.length(tag - 0xc4));
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.length(tag - 0xcc);
      case 0xcf:
        return exact(this.view.getBigUint64(this.skip(8)));
      case 0xd0:
        return this.view.getInt8(this.skip(1));
      case 0xd1:
        return this.view.getInt16(this.skip(2));
      case 0xd2:
        return this.view.getInt32(this.skip(4));
      case 0xd3:
        return exact(this.view.getBigInt64(this.skip(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.text(this.length(tag - 0xd9));
      case 0xdc:
      case 0xdd:
        return this.array(this.length(tag - 0xdb), depth);
      case 0xde:
      case 0xdf:
        return this.map(this.length(tag - 0xdd), depth);
    }
    throw new RemoteError(`0x${tag.toString(16)} is not part of the wire format`);
  }

  private skip(count: number): number {
    if (this.at + count > this.data.length) throw new RemoteError("a value that ends too early");
    this.at += count;
    return this.at - count;
  }

  private length(size: number): number {
    const at = this.skip(1 << size);
    return size === 0 ? this.data[at] : size === 1 ? this.view.getUint16(at) : this.view.getUint32(at);
  }

  private bytes(length: number): Uint8Array {
    const at = this.skip(length);
    return this.data.slice(at, at + length);
  }

  private text(length: number): string {
    const at = this.skip(length);
    return fromUtf8(this.data.subarray(at, at + length));
  }

  private array(length: number, depth: number): Value[] {
    const values: Value[] = [];
    for (let i = 0; i < length; i++) values.push(this.read(depth + 1));
    return values;
  }

  private map(length: number, depth: number): Map<Value, Value> {
    const values = new Map<Value, Value>();
    for (let i = 0; i < length; i++) values.set(this.read(depth + 1), this.read(depth + 1));
    return values;
  }
}

const exact = (value: bigint): number | bigint =>
  BigInt.asIntN(54, value) === value && value !== -(1n << 53n) ? Number(value) : value;
