"""Memory for event kernels, which cannot make arrays: blocks of words, and items in chains.

A block has a length that is rounded up to a power of two, and what was given back is taken again first. An
item is something of one peer that waits for a number; a chain holds items in the order of their numbers, and
those of one number in the order in which they came. A chain is known by its last item, 0 if it is empty, and
its last item is followed by its first. Places start at 1 in both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.sim.kernels.events import FULL
from antecede.sim.kernels.jit import step

_MOST_WORDS = 1 << 27
_MOST_ITEMS = 1 << 24
_LENGTHS = 32
_WORDS, _ITEMS, _FREE = range(3)


class Pools(NamedTuple):
    at: np.ndarray
    """How many words and items were ever taken, and the first item that was given back."""
    words: np.ndarray
    vacant: np.ndarray
    """For each length the first block that was given back; each names the next."""
    after: np.ndarray
    number: np.ndarray
    """What an item waits for."""
    message: np.ndarray
    place: np.ndarray
    """How far it has come, whatever its chain means by that."""
    since: np.ndarray
    late: np.ndarray
    """When its message came, and what a probe remembers of it."""
    block: np.ndarray
    size: np.ndarray
    kept: np.ndarray
    """Words of its own: where, how many there are, and how many of them still count."""


def fresh() -> Pools:
    return Pools(
        np.array([1, 1, 0], np.int64), np.empty(_MOST_WORDS, np.int64), np.zeros(_LENGTHS, np.int64),
        np.empty(_MOST_ITEMS, np.int32), np.empty(_MOST_ITEMS, np.int32), np.empty(_MOST_ITEMS, np.int32),
        np.empty(_MOST_ITEMS, np.int32), np.empty(_MOST_ITEMS, np.int64), np.empty(_MOST_ITEMS, np.int64),
        np.empty(_MOST_ITEMS, np.int32), np.empty(_MOST_ITEMS, np.int32), np.empty(_MOST_ITEMS, np.int32),
    )  # fmt: skip


@step
def bits_for(length: Any) -> Any:
    bits = 0
    while 1 << bits < length:
        bits += 1
    return bits


@step
def new_block(run: Any, pools: Any, length: Any) -> Any:
    """Room for so many words."""
    at, words = pools.at, pools.words
    bits = bits_for(length)
    place = pools.vacant[bits]
    if place:
        pools.vacant[bits] = words[place]
        return place
    place = at[_WORDS]
    if place + (1 << bits) > len(words):
        run.at[FULL] = 1
        return 1
    at[_WORDS] += 1 << bits
    return place


@step
def free_block(pools: Any, place: Any, length: Any) -> Any:
    bits = bits_for(length)
    pools.words[place] = pools.vacant[bits]
    pools.vacant[bits] = place


@step
def new_item(run: Any, pools: Any) -> Any:
    at = pools.at
    item = at[_FREE]
    if item:
        at[_FREE] = pools.after[item]
        return item
    item = at[_ITEMS]
    if item == len(pools.after):
        run.at[FULL] = 1
        return 1
    at[_ITEMS] += 1
    return item


@step
def free_item(pools: Any, item: Any) -> Any:
    pools.after[item] = pools.at[_FREE]
    pools.at[_FREE] = item


@step
def chain(pools: Any, chains: Any, me: Any, column: Any, item: Any, number: Any) -> Any:
    """Into a chain, after all that wait for the same number or a smaller one."""
    after, numbers = pools.after, pools.number
    numbers[item] = number
    last = chains[me, column]
    if last == 0:
        after[item] = item
        chains[me, column] = item
        return
    before = last
    if numbers[last] <= number:
        chains[me, column] = item
    else:
        while numbers[after[before]] <= number:
            before = after[before]
    after[item] = after[before]
    after[before] = item


@step
def first(pools: Any, chains: Any, me: Any, column: Any, number: Any) -> Any:
    """The first of a chain, if what it waits for has come with `number`; else 0."""
    last = chains[me, column]
    if last == 0:
        return 0
    item = pools.after[last]
    return item if pools.number[item] <= number else 0


@step
def unchain(pools: Any, chains: Any, me: Any, column: Any) -> Any:
    """Take the first item off."""
    last = chains[me, column]
    item = pools.after[last]
    if item == last:
        chains[me, column] = 0
    else:
        pools.after[last] = pools.after[item]
    return item
