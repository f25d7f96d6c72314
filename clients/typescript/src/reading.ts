/** Elements of what has come from the wire, checked. */

import type { Id } from "./bytes.js";
import { RemoteError } from "./errors.js";
import type { Value } from "./msgpack.js";

const fail = (what: string): never => {
  throw new RemoteError(`it sends something else than ${what}`);
};

export const integer = (value: Value): number =>
  typeof value === "number" && value >= 0 ? value : fail("a number");

/** An id of 64 bits: always a bigint here, whatever its size. */
export const id = (value: Value): Id =>
  (typeof value === "number" && value >= 0) || (typeof value === "bigint" && value >= 0n)
    ? BigInt(value)
    : fail("an id");

export const signed = (value: Value): Id =>
  typeof value === "number" || typeof value === "bigint" ? BigInt(value) : fail("an integer");

export const text = (value: Value): string => (typeof value === "string" ? value : fail("text"));

export const bytes = (value: Value): Uint8Array => (value instanceof Uint8Array ? value : fail("bytes"));

export const flag = (value: Value): boolean => (typeof value === "boolean" ? value : fail("a boolean"));

/** An array of at least so many elements: what follows is of a later version. */
export function array(value: Value, least = 0): Value[] {
  return Array.isArray(value) && value.length >= least ? value : fail(`an array of ${least} elements`);
}

export function list<T>(value: Value, read: (each: Value) => T): T[] {
  return array(value).map(read);
}

export function map<K, T>(value: Value, readKey: (key: Value) => K, read: (each: Value) => T): Map<K, T> {
  if (!(value instanceof Map)) return fail("a map");
  return new Map(Array.from(value, ([key, each]) => [readKey(key), read(each)]));
}

/** A map with text as keys, such as a struct of named fields. */
export function named(value: Value): Map<Value, Value> {
  return value instanceof Map ? value : fail("a map");
}
