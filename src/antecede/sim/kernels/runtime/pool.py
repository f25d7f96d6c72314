"""Memory for event kernels, which cannot create arrays: blocks of words, and items in chains.

A block's length is rounded up to a power of two; blocks and items that were freed are reused first. Places
start at 1 in both, and 0 is none.

An item is anything that waits at one peer for a number. A chain holds the items that wait for one sender:
those of one number in the order in which they came; the first of each number leads to the first of the next
higher, and the highest back to the lowest. A chain is identified by the first item of its highest number, 0
if it is empty. An item is one record, because when it is looked at nothing of it is in a cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.world_state import FULL

_MAX_WORDS = 1 << 27
_MAX_ITEMS = 1 << 24
_LENGTHS = 32
_USED, _FREE = range(2)

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
"""`after`: the next item of the same number, 0 if none. `higher`, `tail`: of the first item of a number,
the first of the next number and the last of its own. `number`: what it waits for. `message`: which message
it is. `place`: how far that was checked, in the sense of its chain. `since`: when it arrived. `late`: what
a probe remembers of it."""


class WordPool(NamedTuple):
    """Blocks of words."""

    scalars: np.ndarray
    """How many words were ever used."""
    words: np.ndarray
    vacant: np.ndarray
    """For each length the first free block; the first word of a free block is the place of the next."""


class ItemPool(NamedTuple):
    """Records with a field `after`."""

    scalars: np.ndarray
    """How many items were ever used, and the first free one."""
    rows: np.ndarray


def create_words() -> WordPool:
    return WordPool(np.ones(1, np.int64), np.empty(_MAX_WORDS, np.int64), np.zeros(_LENGTHS, np.int64))


def create_items(fields: list[tuple[str, type[np.generic]]], most: int = _MAX_ITEMS) -> ItemPool:
    """Items with these fields, of which `after` is one."""
    return ItemPool(np.array([1, 0], np.int64), np.empty(most, np.dtype(fields, align=True)))


@njit_inline
def bits_for(length: Any) -> Any:
    """The exponent of the smallest power of two that is not below `length`."""
    bits = 0
    while 1 << bits < length:
        bits += 1
    return bits


@njit_inline
def new_block(world: Any, pool: Any, length: Any) -> Any:
    """The place of a block of at least `length` words."""
    words = pool.words
    bits = bits_for(length)
    place = pool.vacant[bits]
    if place:
        pool.vacant[bits] = words[place]
        return place
    place = pool.scalars[_USED]
    if place + (1 << bits) > len(words):
        world.scalars[FULL] = 1
        return 1
    pool.scalars[_USED] += 1 << bits
    return place


@njit_inline
def free_block(pool: Any, place: Any, length: Any) -> Any:
    bits = bits_for(length)
    pool.words[place] = pool.vacant[bits]
    pool.vacant[bits] = place


@njit_inline
def new_item(world: Any, pool: Any) -> Any:
    """The place of an item whose fields are undefined."""
    scalars = pool.scalars
    item = scalars[_FREE]
    if item:
        scalars[_FREE] = pool.rows[item].after
        return item
    item = scalars[_USED]
    if item == len(pool.rows):
        world.scalars[FULL] = 1
        return 1
    scalars[_USED] += 1
    return item


@njit_inline
def free_item(pool: Any, item: Any) -> Any:
    pool.rows[item].after = pool.scalars[_FREE]
    pool.scalars[_FREE] = item


@njit_inline
def chain_item(pool: Any, chains: Any, place: Any, item: Any, number: Any) -> Any:
    """Add an item to the chain at `place`, behind all that wait for the same number."""
    rows, last = pool.rows, chains[place]
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
def first_waiting(pool: Any, chains: Any, place: Any, number: Any) -> Any:
    """The first item that waits for the lowest number of a chain, if that is not above `number`; else 0."""
    last = chains[place]
    if last == 0:
        return 0
    item = pool.rows[last].higher
    return item if pool.rows[item].number <= number else 0


@njit_inline
def unchain_lowest(pool: Any, chains: Any, place: Any) -> Any:
    """Take all items that wait for the lowest number off a chain; the first of them."""
    last = chains[place]
    item = pool.rows[last].higher
    if item == last:
        chains[place] = 0
    else:
        pool.rows[last].higher = pool.rows[item].higher
    return item
