"""The smallest run that fails as a simulated one does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from antecede.check.bounds import Bounds
from antecede.check.counterexample import CounterExample, find_smallest
from antecede.check.recording import Recording
from antecede.check.shrink import failure_of, shrink, smaller_layouts
from antecede.errors import InputError
from antecede.protocols.base import LocalError, Protocol
from antecede.protocols.catalog import find_protocol
from antecede.sim.scenario import Scenario

MAX_STATES = 20_000
"""States explored for each number of messages and processes: below a second."""
_SMALL = 3
"""The most members of groups whose schedules are all explored."""
_MAX_LAYOUTS = 30
_MAX_EXPLORED = 200_000
"""States explored in all small groups: a few seconds."""


def smallest_failure(
    scenario: Scenario, max_states: int = MAX_STATES, claims: bool = False
) -> CounterExample | None:
    """A small run that fails like a scenario: its own run shrunk, or a small group explored, whichever is
    smaller. None if neither fails, because the failure needs more members, or clocks that differ.

    Like `verify`, it judges deliveries; if requested, also the named dependencies and the reasons for holding
    messages.
    """
    kind = find_protocol(scenario.protocol)
    if scenario.overlay is not None:
        return None  # Explored groups use the overlay of the protocol's layout.
    found = None
    if not kind.links.bounded_delays:  # Otherwise the behaviour depends on time.
        found = _shrink_run(kind, scenario, max_states, claims)
        if found is not None and scenario.layout is None:
            return found
    small = list(_small_groups(kind, scenario, claims))
    most = found.messages if found else None
    other = find_smallest(kind, small, max_states, most, _MAX_EXPLORED) if small else None
    if found is None or other is None:
        return found or other
    is_same = failure_of(found.violation) == failure_of(other.violation)
    return other if is_same and other.size < found.size else found


def _shrink_run(
    kind: type[Protocol], scenario: Scenario, max_states: int, claims: bool
) -> CounterExample | None:
    recording = Recording(list(scenario.groups) if scenario.groups else (None,))
    with contextlib.suppress(Exception, SystemExit):  # An exception is the failure to find.
        scenario.world(recording.wrap(scenario.members()), []).run()
    return shrink(kind, _bounds(scenario, claims=claims), recording.steps, max_states)


def _bounds(scenario: Scenario, **fields: Any) -> Bounds:
    described: dict[str, Any] = {
        "peers": scenario.peers,
        "groups": scenario.groups,
        "layout": scenario.layout,
    }
    return Bounds(**{**described, "total": 1, **fields})


def _small_groups(kind: type[Protocol], scenario: Scenario, claims: bool) -> Iterator[Bounds]:
    duplicates = int(any(fault.startswith("duplicate") for fault in scenario.faults))
    limits: dict[str, Any] = {"messages": 2, "duplicates": duplicates, "claims": claims}
    if scenario.layout is None:
        if scenario.groups is None:
            for peers in range(2, min(_SMALL, scenario.peers) + 1):
                yield _bounds(scenario, peers=peers, **limits)
        return
    layouts = [
        (peers, layout)
        for peers, layout in smaller_layouts(scenario.layout, scenario.peers)
        if 1 < peers <= _SMALL and _is_valid(kind, peers, layout)
    ]
    for peers, layout in layouts[:: 1 + len(layouts) // _MAX_LAYOUTS]:
        yield _bounds(scenario, peers=peers, layout=layout, **limits)


def _is_valid(kind: type[Protocol], peers: int, layout: dict[str, Any]) -> bool:
    try:
        Bounds(peers=peers, layout=layout).resolved_layout(kind)
    except (InputError, LocalError):
        return False
    return True
