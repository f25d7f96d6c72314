"""Memory for event kernels, which cannot make arrays: blocks of words, and items in chains.

A block has a length that is rounded up to a power of two, and what was given back is taken again first. An
item is something of one peer that waits for a number. A chain holds such items: those of one number in the
order in which they came, and of each number the first leads to the first of the next higher, and the highest
back to the lowest. A chain is known by the first of its highest number, 0 if it is empty. Places start at 1
in both. An item is one record, because it is looked at when nothing of it is in a cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.events import FULL

_MAX_WORDS = 1 << 27
_MAX_ITEMS = 1 << 24
_LENGTHS = 32
_MADE, _FREE = range(2)

ITEM: list[tuple[str, type[np.generic]]] = [
    ("after", np.int32),
    ("higher", np.int32),
    ("tail", np.int32),
    ("number", np.int32),
    ("message", np.int32),
    ("place", np.int32),
    ("since", np.int64),
    ("late", np.int64),
]
"""What follows it of the same number, 0 if nothing does; if it is the first of its number, which of another
number is next and which is the last of its own; that number; which message it is, how far that has come
(whatever that means in its chain), when it came and what a probe remembers of it."""


class Blocks(NamedTuple):
    at: np.ndarray
    """How many words were ever taken."""
    words: np.ndarray
    vacant: np.ndarray
    """For each length the first block that was given back; each names the next."""


class Items(NamedTuple):
    at: np.ndarray
    """How many were ever taken, and the first that was given back."""
    rows: np.ndarray


def blocks() -> Blocks:
    return Blocks(np.ones(1, np.int64), np.empty(_MAX_WORDS, np.int64), np.zeros(_LENGTHS, np.int64))


def items(fields: list[tuple[str, type[np.generic]]], most: int = _MAX_ITEMS) -> Items:
    return Items(np.array([1, 0], np.int64), np.empty(most, np.dtype(fields, align=True)))


@njit_inline
def bits_for(length: Any) -> Any:
    bits = 0
    while 1 << bits < length:
        bits += 1
    return bits


@njit_inline
def new_block(run: Any, blocks: Any, length: Any) -> Any:
    """Room for so many words."""
    words = blocks.words
    bits = bits_for(length)
    place = blocks.vacant[bits]
    if place:
        blocks.vacant[bits] = words[place]
        return place
    place = blocks.at[_MADE]
    if place + (1 << bits) > len(words):
        run.at[FULL] = 1
        return 1
    blocks.at[_MADE] += 1 << bits
    return place


@njit_inline
def free_block(blocks: Any, place: Any, length: Any) -> Any:
    bits = bits_for(length)
    blocks.words[place] = blocks.vacant[bits]
    blocks.vacant[bits] = place


@njit_inline
def new_item(run: Any, items: Any) -> Any:
    at = items.at
    item = at[_FREE]
    if item:
        at[_FREE] = items.rows[item].after
        return item
    item = at[_MADE]
    if item == len(items.rows):
        run.at[FULL] = 1
        return 1
    at[_MADE] += 1
    return item


@njit_inline
def free_item(items: Any, item: Any) -> Any:
    items.rows[item].after = items.at[_FREE]
    items.at[_FREE] = item


@njit_inline
def chain(items: Any, chains: Any, place: Any, item: Any, number: Any) -> Any:
    """Into the chain at `place`, behind all that wait for the same number."""
    rows, last = items.rows, chains[place]
    rows[item].number, rows[item].after, rows[item].tail = number, 0, item
    if last == 0:
        rows[item].higher = item
        chains[place] = item
        return
    group, lower = last, last
    if rows[last].number > number:
        group = rows[lower].higher
        while rows[group].number < number:
            lower, group = group, rows[group].higher
    if rows[group].number == number:
        rows[rows[group].tail].after = item
        rows[group].tail = item
        return
    rows[item].higher = rows[lower].higher
    rows[lower].higher = item
    if rows[last].number < number:
        chains[place] = item


@njit_inline
def first(items: Any, chains: Any, place: Any, number: Any) -> Any:
    """The first of those that wait for the lowest number, if that is not above `number`; else 0."""
    last = chains[place]
    if last == 0:
        return 0
    item = items.rows[last].higher
    return item if items.rows[item].number <= number else 0


@njit_inline
def unchain(items: Any, chains: Any, place: Any) -> Any:
    """Take all off that wait for the lowest number; the first of them."""
    last = chains[place]
    item = items.rows[last].higher
    if item == last:
        chains[place] = 0
    else:
        items.rows[last].higher = items.rows[item].higher
    return item
