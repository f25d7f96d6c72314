"""Which processes are explored in a state, so that schedules that differ in nothing else are explored once.

What happens at different processes in either order leads to the same state. So it suffices to explore what
happens at some processes S, if no other process can send to one of S before one of S has done something: what
the others do can then be done afterwards as well. In the terms of partial-order reduction, the events at S
are a persistent set.

A process can send because it broadcasts, or because of a message that it forwards (`may_forward`). On a FIFO
link on which a packet is under way, another one changes nothing: it arrives only after the first.
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
        """A process, with all that can send to it, and to these, and so on."""
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
            chosen |= unfinished  # who broadcasts takes that from the others
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
        """Whether a process can send to one of the chosen while these do nothing."""
        group, bounds = self._group, self._group.bounds
        # If peers broadcast for the first time in the order of ranks, those after it wait for it.
        waiting = (each for each in chosen if self._in_rank_order and not influences[each].sent)
        if not influences[other].sent and any(each > other for each in waiting):
            return True
        to = self._everybody if is_unfinished else 0
        for message, peers in enumerate(influences[other].forwards):
            origin, number = divmod(message, bounds.messages)
            if number < influences[origin].sent or origin not in chosen:
                to |= peers
        return any(to >> each & 1 and other * group.size + each not in busy for each in chosen)
