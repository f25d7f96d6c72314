/** The lives of a process, by which partners notice a restored or copied store. */

import type { Life } from "./frames.js";

export const MAX_LIVES = 32;

const isSame = (one: Life, other: Life): boolean => one[0] === other[0] && one[1] === other[1];
const has = (lives: Life[], life: Life): boolean => lives.some((each) => isSame(each, life));

export function isSameLineage(one: Life[], other: Life[]): boolean {
  return one.length === other.length && one.every((life, i) => isSame(life, other[i]));
}

/** Whether a greeting with this lineage comes from an earlier life than the one known. */
export function isEarlier(lineage: Life[], known: Life[]): boolean {
  return lineage.length > 0 && has(known.slice(0, -1), lineage[lineage.length - 1]);
}

/** Whether `known` is certainly not a prefix of `lineage`. */
export function isForked(lineage: Life[], known: Life[]): boolean {
  if (!known.length || has(lineage, known[known.length - 1])) return false;
  const isLong = lineage.length === MAX_LIVES || known.length === MAX_LIVES;
  return known.some((life) => has(lineage, life)) || !isLong;
}
