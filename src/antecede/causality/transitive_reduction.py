"""Immediate dependencies: the transitive reduction of causal order, in compiled passes.

*From vectors* (`immediate_dependencies`; `transitive_closure` computes every message's past as a count for
each stream). The causes that may be immediate are the last message of each stream in the past, and of these
only those that the sender's previous message did not have in its own past. Candidates are visited by size of
past, largest first; a cause is immediate if no candidate visited before has it in its past. Ranges of
messages are independent of each other.

*From edges* (`immediate_edges`), in one pass in topological order. A parent can be a cause of another parent
only if it has another effect and is not the latest parent; only such messages are ever looked up. Each
message has a row that says, for each *slot*, the latest message of that slot in its past. The looked-up
messages of one chain share a slot until the last lookup of any of them; then the slot is reused for messages
with higher numbers. A row is freed once all effects of its message are done. So memory is proportional to
what is live at a time, as in register allocation, and not to the size of the graph. If that is still too
much, several passes process a few slots each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain

_MEMORY_BYTES = 1 << 28
_MIN_SLOTS = 16


class EdgeArrays(NamedTuple):
    """A graph in compressed sparse rows: the causes of message m are cause[start[m]:start[m + 1]]."""

    start: np.ndarray
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
def immediate_dependencies(first: Any, previous: Any, vectors: Any, sizes: Any, low: Any, high: Any) -> Any:
    """The immediate dependencies of messages low, ..., high - 1, as `EdgeArrays`' start and cause.

    `first` is the first message of each stream, `previous` the one that the same sender sent before (-1:
    none), `sizes` as computed by `past_sizes`.
    """
    width = vectors.shape[1]
    start = np.zeros(high - low + 1, np.int64)
    causes = np.empty(2 * (high - low) + width, np.int64)
    covered = np.empty(width, vectors.dtype)
    candidates, streams = np.empty(width, np.int64), np.empty(width, np.int64)
    is_immediate = np.empty(width, np.bool_)
    empty_past = np.zeros(width, vectors.dtype)
    total = 0
    for message in range(low, high):
        vector = vectors[message]
        before = vectors[previous[message]] if previous[message] >= 0 else empty_past
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
            is_immediate[place] = covered[stream] < vector[stream]
            if is_immediate[place] and count > 1:
                past = vectors[candidates[place]]
                for other in range(width):
                    covered[other] = max(covered[other], past[other])
        if total + count > len(causes):
            larger = np.empty(2 * len(causes), np.int64)
            larger[:total] = causes[:total]
            causes = larger
        for place in range(count):
            if is_immediate[place]:
                causes[total] = candidates[place]
                total += 1
        start[message - low + 1] = total
    return start, causes[:total].copy()


def immediate_edges(edges: EdgeArrays, process: np.ndarray, memory: int = _MEMORY_BYTES) -> np.ndarray:
    """For each edge, whether it is immediate.

    Messages are numbered in topological order; the causes of a message are listed from the highest to the
    lowest, each once. `process` is the sender of each message, `memory` a bound in bytes.
    """
    size = len(edges.start) - 1
    last_effect, last_lookup = find_lookups(edges.start, edges.cause)
    slot, slots = assign_slots(chain_decomposition(edges.start, edges.cause, process), last_lookup)
    redundant = np.zeros(len(edges.cause), np.bool_)
    rows = max_live_rows(edges.start, edges.cause, last_effect)
    slots_a_pass = max(_MIN_SLOTS, memory // (4 * rows))
    row_of = np.empty(size, np.int64)
    for low in range(0, slots, slots_a_pass):
        table = np.zeros((rows, min(slots_a_pass, slots - low)), np.int32)
        mark_redundant(edges.start, edges.cause, last_effect, slot, low, table, row_of, redundant)
    return ~redundant


@njit_plain
def find_lookups(start: Any, cause: Any) -> Any:
    """For each message its last effect, and the last effect that has to look up whether this message is in
    the past of another of its causes; -1 if there is none."""
    size = len(start) - 1
    effects, last_effect = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    for message in range(size):
        for edge in range(start[message], start[message + 1]):
            effects[cause[edge]] += 1
            last_effect[cause[edge]] = message
    last_lookup = np.full(size, -1, np.int64)
    for message in range(size):
        for edge in range(start[message] + 1, start[message + 1]):
            if effects[cause[edge]] > 1:
                last_lookup[cause[edge]] = message
    return last_effect, last_lookup


@njit_plain
def chain_decomposition(start: Any, cause: Any, process: Any) -> Any:
    """The chain of each message, greedily: it extends the chain of a cause that is its chain's end, of the
    same process if possible, or begins a new one."""
    size = len(start) - 1
    chain, is_extended = np.empty(size, np.int64), np.zeros(size, np.bool_)
    count = 0
    for message in range(size):
        end = np.int64(-1)
        for edge in range(start[message], start[message + 1]):
            parent = cause[edge]
            if not is_extended[parent] and (end < 0 or process[parent] == process[message] != process[end]):
                end = parent
        if end >= 0:
            is_extended[end] = True
            chain[message] = chain[end]
        else:
            chain[message] = count
            count += 1
    return chain


@njit_plain
def assign_slots(chain: Any, last_lookup: Any) -> Any:
    """A slot for each message that is looked up (-1: it is not), and how many slots there are.

    A *segment* is a piece of a chain that is live from its first message to the last lookup of any of its
    messages. A segment that ends frees its slot for the next one, as in linear-scan register allocation.
    """
    size = len(chain)
    segment, segments = np.full(size, -1, np.int64), 0
    open_segment, end = np.full(size, -1, np.int64), np.empty(size, np.int64)
    for message in range(size):
        if last_lookup[message] >= 0:
            current = open_segment[chain[message]]
            if current < 0 or end[current] < message:
                current = open_segment[chain[message]] = segments
                end[current] = last_lookup[message]
                segments += 1
            segment[message] = current
            end[current] = max(end[current], last_lookup[message])
    ending, next_ending = np.full(size, -1, np.int64), np.empty(segments, np.int64)
    for current in range(segments):
        next_ending[current] = ending[end[current]]
        ending[end[current]] = current
    slot_of_segment, free = np.full(segments, -1, np.int64), np.empty(segments, np.int64)
    available, slots = 0, 0
    slot = np.full(size, -1, np.int64)
    for message in range(size):
        current = ending[message]
        while current >= 0:
            free[available] = slot_of_segment[current]
            available += 1
            current = next_ending[current]
        current = segment[message]
        if current >= 0:
            if slot_of_segment[current] < 0 and available:
                available -= 1
                slot_of_segment[current] = free[available]
            elif slot_of_segment[current] < 0:
                slot_of_segment[current] = slots
                slots += 1
            slot[message] = slot_of_segment[current]
    return slot, slots


@njit_plain
def max_live_rows(start: Any, cause: Any, last_effect: Any) -> Any:
    """The most rows that are live at a time."""
    live, most = 0, 1
    for message in range(len(start) - 1):
        live += 1
        most = max(most, live)
        live -= last_effect[message] < 0
        for edge in range(start[message], start[message + 1]):
            live -= last_effect[cause[edge]] == message
    return most


@njit_plain
def mark_redundant(
    start: Any, cause: Any, last_effect: Any, slot: Any, low: Any, table: Any, row_of: Any, redundant: Any
) -> Any:
    """Mark the edges whose cause is in the past of another cause, as far as the slots of `table`, which begin
    at `low`, can tell. `row_of` is scratch space."""
    rows, width = table.shape
    free = np.arange(rows)
    available = rows
    for message in range(len(start) - 1):
        begin, end = start[message], start[message + 1]
        inherited = end > begin and last_effect[cause[begin]] == message
        if inherited:
            own = row_of[cause[begin]]
            row = table[own]
        else:
            available -= 1
            own = free[available]
            row = table[own]
            if end > begin:
                row[:] = table[row_of[cause[begin]]]
            else:
                row[:] = 0
        for edge in range(begin + 1, end):
            parent = cause[edge]
            column = slot[parent] - low
            if 0 <= column < width and row[column] > parent:
                redundant[edge] = True
            elif not redundant[edge]:
                other = table[row_of[parent]]
                for place in range(width):
                    row[place] = max(row[place], other[place])
        column = slot[message] - low
        if 0 <= column < width:
            row[column] = message + 1
        row_of[message] = own
        for edge in range(begin + inherited, end):
            if last_effect[cause[edge]] == message:
                free[available] = row_of[cause[edge]]
                available += 1
        if last_effect[message] < 0:
            free[available] = own
            available += 1
