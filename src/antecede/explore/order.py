"""The causal past and future of a message of a run, as a position in each lane, computed as the page does."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.explore.index import ExploredRun
from antecede.explore.layout import NO_SEND
from antecede.jit import njit_plain
from antecede.trace.schema import DELIVER


def message_number(explored: ExploredRun, name: str) -> int:
    """The number of the message with this name, its own id or ORIGIN:SEQ; -1 if there is none."""
    messages = explored.columns.messages
    if messages.ids is not None and name and name in messages.ids:
        return messages.ids.index(name)
    who, _, number = name.rpartition(":")
    if who not in explored.columns.origins or not (
        number.isascii() and number.isdigit() and len(number) < 19
    ):
        return -1
    origin = explored.columns.origins.index(who)
    low, high = messages.first[origin], messages.first[origin + 1]
    place = int(low + np.searchsorted(messages.seq[low:high], int(number)))
    return place if place < high and messages.seq[place] == int(number) else -1


def before_and_after(explored: ExploredRun, message: int) -> tuple[np.ndarray, np.ndarray] | None:
    """For each lane, how many of its events are in the message's causal past, and the position of the first
    in its future, which its send begins; None if nobody sent or delivered it.
    """
    layout = explored.layout
    events = layout.events
    event = int(events.send[message])
    if event == NO_SEND:
        deliveries = np.flatnonzero((events.message == message) & (events.kind & 7 == DELIVER))
        if not len(deliveries):
            return None
        event = int(deliveries[np.argmin(layout.place[deliveries])])
    lanes = len(events.lane_start) - 1
    past = np.zeros(lanes, np.int64)
    future = np.full(lanes, np.iinfo(np.int64).max)
    past[events.lane[event]] = future[events.lane[event]] = events.position[event]
    _follow(
        layout.sequence,
        events.lane,
        events.position,
        events.kind,
        events.message,
        events.send,
        int(layout.place[event]),
        past,
        future,
    )
    return past, future


@njit_plain
def _follow(
    sequence: Any,
    lane: Any,
    position: Any,
    kind: Any,
    message: Any,
    send: Any,
    place: int,
    past: Any,
    future: Any,
) -> None:
    for at in range(place - 1, -1, -1):
        event = sequence[at]
        if kind[event] != DELIVER or message[event] < 0 or position[event] >= past[lane[event]]:
            continue
        sent = send[message[event]]
        if sent >= 0 and position[sent] >= past[lane[sent]]:
            past[lane[sent]] = position[sent] + 1
    for at in range(place + 1, len(sequence)):
        event = sequence[at]
        if kind[event] != DELIVER or message[event] < 0 or position[event] >= future[lane[event]]:
            continue
        sent = send[message[event]]
        if sent >= 0 and position[sent] >= future[lane[sent]]:
            future[lane[event]] = position[event]
