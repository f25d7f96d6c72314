"""XXH64 of many texts, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


@njit_plain
def hash_texts(octets: Any, begins: Any, seeds: Any) -> Any:
    """XXH64 of each text, with its seed."""
    hashed = np.empty(seeds.size, np.uint64)
    for row in range(seeds.size):
        hashed[row] = _xxh64(octets, begins[row], begins[row + 1], seeds[row])
    return hashed


@njit_plain
def _word(octets: Any, at: int, size: int) -> Any:
    """A little-endian number."""
    word = np.uint64(0)
    for place in range(size):
        word |= np.uint64(octets[at + place]) << np.uint64(8 * place)
    return word


@njit_plain
def _rotate_one(value: Any, bits: int) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit_plain
def _round(lane: Any, word: Any) -> Any:
    return _rotate_one(lane + word * _PRIME_2, 31) * _PRIME_1


@njit_plain
def _xxh64(octets: Any, begin: int, end: int, seed: Any) -> Any:
    at = begin
    if end - begin >= 32:
        a, b = seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2
        c, d = seed, seed - _PRIME_1
        while end - at >= 32:
            a = _round(a, _word(octets, at, 8))
            b = _round(b, _word(octets, at + 8, 8))
            c = _round(c, _word(octets, at + 16, 8))
            d = _round(d, _word(octets, at + 24, 8))
            at += 32
        value = _rotate_one(a, 1) + _rotate_one(b, 7) + _rotate_one(c, 12) + _rotate_one(d, 18)
        for lane in (a, b, c, d):
            value = (value ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4
    else:
        value = seed + _PRIME_5
    value += np.uint64(end - begin)
    while end - at >= 8:
        value = _rotate_one(value ^ _round(np.uint64(0), _word(octets, at, 8)), 27) * _PRIME_1 + _PRIME_4
        at += 8
    if end - at >= 4:
        value = _rotate_one(value ^ (_word(octets, at, 4) * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        at += 4
    while at < end:
        value = _rotate_one(value ^ (np.uint64(octets[at]) * _PRIME_5), 11) * _PRIME_1
        at += 1
    value = (value ^ (value >> np.uint64(33))) * _PRIME_2
    value = (value ^ (value >> np.uint64(29))) * _PRIME_3
    return value ^ (value >> np.uint64(32))
