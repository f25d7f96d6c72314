"""Which processes are explored in a state, so that schedules that differ only in the order of independent
events are explored once.

Independent events at different processes lead to the same state in either order. So it suffices to explore
the events at some processes S, if no other process can send to one of S before one of S has acted: the events
of the others can be explored afterwards. In the terms of partial-order reduction, the events at S are a
persistent set.

A process can send because it broadcasts, or because of a message that it forwards (`may_forward`). On a FIFO
link on which a packet is in flight, another one changes nothing: it arrives only after the first.
"""

from __future__ import annotations

from antecede.check.group import CheckedGroup, CheckState
from antecede.check.processes import Influence


class PersistentSets:
    """Finds processes that can be explored alone."""

    def __init__(self, group: CheckedGroup, in_rank_order: bool) -> None:
        self._group, self._in_rank_order = group, in_rank_order
        self._everybody = (1 << group.size) - 1
        self._found: dict[tuple[tuple[Influence, ...], frozenset[int]], list[tuple[int, ...]]] = {}

    def candidates(self, state: CheckState) -> list[tuple[int, ...]]:
        """Sets of processes that nobody else can send to, the smallest first."""
        group, known = self._group, self._group.processes
        # A process that crashes is as it was saved, and forwards again what it has received since.
        numbers = (
            state.processes
            if state.rest is None or not state.rest.unsaved
            else tuple(saved for saved, _ in state.rest.unsaved)
        )
        influences = tuple(map(known.influence, numbers))
        busy = frozenset(map(known.links.__getitem__, state.in_flight)) if group.is_fifo else frozenset()
        key = influences, busy
        if (found := self._found.get(key)) is None:
            sets = {self._close(process, influences, busy) for process in range(group.size)}
            found = self._found[key] = sorted(sets, key=lambda each: (len(each), each))
        return found

    def _close(
        self, process: int, influences: tuple[Influence, ...], busy: frozenset[int]
    ) -> tuple[int, ...]:
        """A process, with all processes that can send to it, transitively."""
        group, bounds = self._group, self._group.bounds
        sent = sum(each.sent for each in influences)
        unfinished = {
            each
            for each, influence in enumerate(influences)
            if influence.sent < bounds.messages
            and bounds.may_send(each)
            and (bounds.total is None or sent < bounds.total)
        }
        chosen = {process}
        if bounds.total is not None:
            chosen |= unfinished  # A broadcast consumes the bound that all processes share.
        is_growing = True
        while is_growing:
            joining = {
                other
                for other in set(range(group.size)) - chosen
                if self._reaches(other, other in unfinished, chosen, influences, busy)
            }
            chosen |= joining
            is_growing = bool(joining)
        return tuple(sorted(chosen))

    def _reaches(
        self,
        other: int,
        is_unfinished: bool,
        chosen: set[int],
        influences: tuple[Influence, ...],
        busy: frozenset[int],
    ) -> bool:
        """Whether a process can send to one of the chosen ones before these act."""
        group, bounds = self._group, self._group.bounds
        # If peers first broadcast in the order of their ranks, later peers wait for it.
        waiting = (each for each in chosen if self._in_rank_order and not influences[each].sent)
        if not influences[other].sent and any(each > other for each in waiting):
            return True
        to = self._everybody if is_unfinished else 0
        for message, peers in enumerate(influences[other].forwards):
            origin, number = divmod(message, bounds.messages)
            if number < influences[origin].sent or origin not in chosen:
                to |= peers
        return any(to >> each & 1 and other * group.size + each not in busy for each in chosen)
