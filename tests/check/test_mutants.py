"""`check` finds each mutant of `mbcp` and `freescale` that breaks something, in at most 12 steps."""

from __future__ import annotations

import pytest

from antecede.check.bounds import Bounds
from antecede.check.counterexample import CounterExample, find_smallest
from protocol_mutants import FUNCTIONS, Mutant, mutants_of

MAX_STEPS = 12
MODULES = [
    (protocol, module) for protocol, modules in FUNCTIONS.items() for module in modules if modules[module]
]
BOUNDS: dict[str, list[Bounds]] = {
    "mbcp": [Bounds(peers=2, messages=2, duplicates=1), Bounds(peers=3, messages=2)],
    "freescale": [
        Bounds(peers=2, messages=2, duplicates=1, layout={"inside": [0]}),
        Bounds(peers=2, duplicates=1, layout={"inside": [1]}),
        Bounds(peers=2, messages=2, duplicates=1, layout={"inside": []}),
        Bounds(peers=3, layout={"inside": []}),
        Bounds(peers=3, layout={"inside": [0]}),
        Bounds(peers=3, layout={"inside": [0, 0]}),
        Bounds(peers=3, messages=2, layout={"inside": [1]}),
    ],
}
EQUIVALENT: dict[str, list[str]] = {
    "refuses only what no correct member sends": [
        "without `known is None`", "without `count < 1`", "without `peer == origin`",
        "deleted: raise ", "deleted: self._validate", "without `packet.origin",
        "without `packet.seq < 1`", "without `self._inside(packet.origin)",
        "without `not all", "without `not 0 <= previous", "without `not 1 <=",
        "edge: 0 <= previous", "edge: 1 <= cause", "edge: 1 <= packet.seq", "edge: 1 <= packet.position",
        "deleted: self.holdback.release(MessageId(self.me, seq)",
    ],
    "does not touch what the next statement reads": ["after the next: "],
    "is for batches of messages, which only live members send": [
        "accepted = [", "deleted: return any(accepted)", "add_span",
        "without `isinstance(packet, DependencyPacket)`", "always: if isinstance(packet, DependencyPacket)",
    ],
    "is for repair and reports, which only live members and users read": [
        "deleted: return True", "awaited.get(peer, 0)", "deleted: awaited[peer] = count",
        "without `self.carries_immediate", "always: if self.carries_immediate",
        "deleted: return Delivery(message, packet.payload",
    ],
    "is for groups that change, whose mutants are in tests/membership": [
        "self.forgotten", "others or self.is_open",
    ],
    "only saves work, or memory": [
        "always: if self.awaits_own(first, last)", "always: if message in holdback.held",
        "deleted: self.unreported", "deleted: self.undelivered.discard",
        "edge: packet.position <= last",
        "freescale.super_peer deleted: return", "deleted: self._record_progress",
        "always: if others:", "delivered.add_between",
        "freescale.external always: if sender < self.super_peers",
        "edge: sender < self.super_peers",
    ],
    "lets messages name more than they must, which test_freescale.py judges": [
        "deleted: self.causes.clear()", "deleted: self.causes.difference_update",
        "deleted: self.causes.discard",
        "deleted: self.peer_causes.clear()", "deleted: self.super_causes.clear()",
        "deleted: self.drop_covered(packet)", "deleted: numbers.discard", "deleted: self.super_causes.get",
        "deleted: del self.peer_causes[peer]",
    ],
    "is for the paper's own form of packets": [
        "paper_form", "never_sent", "translated", "relay_previous = self.number - 1", "if sender_previous:",
        "deleted: sender_previous = 0", "supers[self.inbox.me] = {sender_previous}", "delivered.add(number)",
        "edge: number in self.table", "without `number in self.table`",
    ],
    "matters only if no super peer has an internal one, and then nobody reads it": [
        "edge: sender < self.inbox.super_peers",
    ],
}  # fmt: skip
"""Mutants that break no order, and why: what changes."""


ONLY_IN_LARGER_GROUPS = {
    "freescale.super_peer after the next: yield from self._forward_internal(following)": Bounds(
        peers=4, senders=(0, 1, 3), layout={"inside": [1]}
    ),
}
"""Mutants that need another group than the others: a table is cleaned up before it is used."""


def reasons(mutant: Mutant) -> list[str]:
    if mutant.name in ONLY_IN_LARGER_GROUPS:
        return []
    return [reason for reason, parts in EQUIVALENT.items() if any(part in mutant.name for part in parts)]


def find(mutant: Mutant) -> CounterExample | None:
    kind = mutant.load()
    if (bounds := ONLY_IN_LARGER_GROUPS.get(mutant.name)) is not None:
        return find_smallest(kind, [bounds], 100_000, most_messages=3)
    found = find_smallest(kind, BOUNDS[mutant.protocol], 2_500, most_messages=2)
    if found is None and not reasons(mutant):
        found = find_smallest(kind, BOUNDS[mutant.protocol], 12_000, most_messages=3)
    return found


@pytest.mark.parametrize(("protocol", "module"), MODULES)
def test_every_mutant_that_breaks_something_is_found(protocol: str, module: str) -> None:
    missed, long = [], []
    for mutant in mutants_of(protocol, module):
        found = find(mutant)
        if found is None and not reasons(mutant):
            missed.append(mutant.name)
        elif found is not None and len(found.events) > MAX_STEPS:
            long.append((mutant.name, found.size))
    assert missed == []
    assert long == []


def test_every_listed_reason_belongs_to_a_mutant() -> None:
    names = [mutant.name for protocol, module in MODULES for mutant in mutants_of(protocol, module)]
    parts = [part for parts in EQUIVALENT.values() for part in parts]
    assert [part for part in parts if not any(part in name for name in names)] == []
    assert ONLY_IN_LARGER_GROUPS.keys() <= set(names)
