"""Which dependencies are immediate: compiled passes that leave out every cause of a cause.

*From vectors* (a log with deliveries; `causality` gives every message's past as a count a stream). Causes
of a message that may be immediate are the last of each stream in its past, and of these only the news since
its sender's previous message; the rest is that one's past. Taken with the largest pasts first, a cause is
immediate if none that was taken before has it in its past. Any range of messages can be done apart.

*From a table* of parents, in one pass with causes first. Only some parents can be causes of other parents:
those that have another effect, and are not the latest. Only they are looked for. A message's row says for
each *slot* the latest of these in its past. Those of one chain share a slot as long as somebody will ask
for them, then the slot is given to others, whose numbers are higher. Rows go as soon as all effects are
done. So memory is for what is under way, not for the whole table; where even that is too much, a few slots
are done at a time, in several passes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain

_IN_MEMORY = 1 << 28
_LEAST_SLOTS = 16


class EdgeArrays(NamedTuple):
    """The causes of each message, one after the other."""

    start: np.ndarray
    """Where each message's causes begin; one more at the end."""
    cause: np.ndarray


@njit_plain
def past_sizes(vectors: Any) -> Any:
    """How many messages are in each one's past; a cause always has fewer than its effect."""
    sizes = np.zeros(len(vectors), np.int64)
    for message in range(len(vectors)):
        for count in vectors[message]:
            sizes[message] += count
    return sizes


@njit_plain
def immediate(first: Any, previous: Any, vectors: Any, sizes: Any, low: Any, high: Any) -> Any:
    """The immediate dependencies of the messages from `low` to before `high`: where each one's begin, and
    which they are. `first` is each stream's first message, `previous` what its sender sent before (-1: none).
    """
    width = vectors.shape[1]
    start = np.zeros(high - low + 1, np.int64)
    causes = np.empty(2 * (high - low) + width, np.int64)
    covered = np.empty(width, vectors.dtype)
    candidates, streams = np.empty(width, np.int64), np.empty(width, np.int64)
    kept = np.empty(width, np.bool_)
    nothing = np.zeros(width, vectors.dtype)
    found = 0
    for message in range(low, high):
        vector = vectors[message]
        before = vectors[previous[message]] if previous[message] >= 0 else nothing
        count = 0
        for stream in range(width):
            if vector[stream] > before[stream]:
                candidates[count] = first[stream] + vector[stream] - 1
                streams[count] = stream
                count += 1
        covered[:] = 0
        by_size = np.argsort(-sizes[candidates[:count]])
        for place in by_size:
            stream = streams[place]
            kept[place] = covered[stream] < vector[stream]
            if kept[place] and count > 1:
                past = vectors[candidates[place]]
                for other in range(width):
                    covered[other] = max(covered[other], past[other])
        if found + count > len(causes):
            more = np.empty(2 * len(causes), np.int64)
            more[:found] = causes[:found]
            causes = more
        for place in range(count):
            if kept[place]:
                causes[found] = candidates[place]
                found += 1
        start[message - low + 1] = found
    return start, causes[:found].copy()


def reduced(links: EdgeArrays, process: np.ndarray, memory: int = _IN_MEMORY) -> np.ndarray:
    """Which of the links are immediate. Every cause has a lower number than its effect, and each message's
    causes come from the highest to the lowest, each once. `memory` is in bytes."""
    size = len(links.start) - 1
    last_effect, asked_until = lookups(links.start, links.cause)
    slot, slots = assign_slots(chains(links.start, links.cause, process), asked_until)
    needless = np.zeros(len(links.cause), np.bool_)
    rows = most_alive(links.start, links.cause, last_effect)
    at_once = max(_LEAST_SLOTS, memory // (4 * rows))
    row_of = np.empty(size, np.int64)
    for low in range(0, slots, at_once):
        table = np.zeros((rows, min(at_once, slots - low)), np.int32)
        mark(links.start, links.cause, last_effect, slot, low, table, row_of, needless)
    return ~needless


@njit_plain
def lookups(start: Any, cause: Any) -> Any:
    """Of each message: its last effect (-1: none), and the last effect that has to find out whether another
    of its causes has this one in its past (-1: none)."""
    size = len(start) - 1
    effects, last_effect = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    for message in range(size):
        for link in range(start[message], start[message + 1]):
            effects[cause[link]] += 1
            last_effect[cause[link]] = message
    asked_until = np.full(size, -1, np.int64)
    for message in range(size):
        for link in range(start[message] + 1, start[message + 1]):
            if effects[cause[link]] > 1:
                asked_until[cause[link]] = message
    return last_effect, asked_until


@njit_plain
def chains(start: Any, cause: Any, process: Any) -> Any:
    """A chain for each message: that of a cause which nobody follows yet, of the same process if possible."""
    size = len(start) - 1
    chain, followed = np.empty(size, np.int64), np.zeros(size, np.bool_)
    count = 0
    for message in range(size):
        after = np.int64(-1)
        for link in range(start[message], start[message + 1]):
            each = cause[link]
            if not followed[each] and (after < 0 or process[each] == process[message] != process[after]):
                after = each
        if after >= 0:
            followed[after] = True
            chain[message] = chain[after]
        else:
            chain[message] = count
            count += 1
    return chain


@njit_plain
def assign_slots(chain: Any, asked_until: Any) -> Any:
    """A slot for each message that is asked for (-1: it is not), and how many slots that takes."""
    size = len(chain)
    part, parts = np.full(size, -1, np.int64), 0
    open_part, until = np.full(size, -1, np.int64), np.empty(size, np.int64)
    for message in range(size):
        if asked_until[message] >= 0:
            here = open_part[chain[message]]
            if here < 0 or until[here] < message:
                here = open_part[chain[message]] = parts
                until[here] = asked_until[message]
                parts += 1
            part[message] = here
            until[here] = max(until[here], asked_until[message])
    ending, next_ending = np.full(size, -1, np.int64), np.empty(parts, np.int64)
    for here in range(parts):
        next_ending[here] = ending[until[here]]
        ending[until[here]] = here
    slot_of_part, free = np.full(parts, -1, np.int64), np.empty(parts, np.int64)
    available, slots = 0, 0
    slot = np.full(size, -1, np.int64)
    for message in range(size):
        here = ending[message]
        while here >= 0:
            free[available] = slot_of_part[here]
            available += 1
            here = next_ending[here]
        here = part[message]
        if here >= 0:
            if slot_of_part[here] < 0 and available:
                available -= 1
                slot_of_part[here] = free[available]
            elif slot_of_part[here] < 0:
                slot_of_part[here] = slots
                slots += 1
            slot[message] = slot_of_part[here]
    return slot, slots


@njit_plain
def most_alive(start: Any, cause: Any, last_effect: Any) -> Any:
    """How many rows are needed at once."""
    alive, most = 0, 1
    for message in range(len(start) - 1):
        alive += 1
        most = max(most, alive)
        alive -= last_effect[message] < 0
        for link in range(start[message], start[message + 1]):
            alive -= last_effect[cause[link]] == message
    return most


@njit_plain
def mark(
    start: Any, cause: Any, last_effect: Any, slot: Any, low: Any, table: Any, row_of: Any, needless: Any
) -> Any:
    """Mark links whose cause another cause has in its past, as far as the slots from `low` on tell."""
    rows, width = table.shape
    free = np.arange(rows)
    available = rows
    for message in range(len(start) - 1):
        begin, end = start[message], start[message + 1]
        inherited = end > begin and last_effect[cause[begin]] == message
        if inherited:
            mine = row_of[cause[begin]]
            row = table[mine]
        else:
            available -= 1
            mine = free[available]
            row = table[mine]
            if end > begin:
                row[:] = table[row_of[cause[begin]]]
            else:
                row[:] = 0
        for link in range(begin + 1, end):
            each = cause[link]
            place = slot[each] - low
            if 0 <= place < width and row[place] > each:
                needless[link] = True
            elif not needless[link]:
                other = table[row_of[each]]
                for column in range(width):
                    row[column] = max(row[column], other[column])
        place = slot[message] - low
        if 0 <= place < width:
            row[place] = message + 1
        row_of[message] = mine
        for link in range(begin + inherited, end):
            if last_effect[cause[link]] == message:
                free[available] = row_of[cause[link]]
                available += 1
        if last_effect[message] < 0:
            free[available] = mine
            available += 1
