"""States that other processes of an exploration understand.

Within one process, states and packets have numbers in the order in which they were found. Elsewhere the order
is another, so states travel with hashes in place of numbers, and what a hash stands for travels once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from antecede.check.group import CheckedGroup, CheckState, Rest
from antecede.check.processes import ProcessState, SentPacket

_HASH_BYTES = 8


class Content(NamedTuple):
    """What a hash stands for: the state of a process, or a packet."""

    hash: int
    is_packet: bool
    data: bytes


class PortableStates:
    """Translates the states of a group. `learn` the contents found by others before decoding their states."""

    def __init__(self, group: CheckedGroup) -> None:
        self._group, self._known = group, group.processes
        self._hashes: list[int] = []
        self._packet_hashes: list[int] = []
        self._numbers: dict[int, int] = {}
        self._packet_numbers: dict[int, int] = {}
        self._reported: set[int] = set()

    def learn(self, contents: Iterable[Content]) -> None:
        for content in contents:
            self._reported.add(content.hash)
            if content.is_packet:
                packet = msgspec.msgpack.decode(content.data, type=SentPacket)
                self._packet_numbers[content.hash] = self._known.adopt_packet(packet)
            else:
                state = msgspec.msgpack.decode(content.data, type=ProcessState)
                self._numbers[content.hash] = self._known.adopt_state(state)

    def news(self) -> Iterator[Content]:
        """Contents found here that have not been reported yet."""
        self._update()
        for found, hashes, is_packet in (
            (self._known.states, self._hashes, False),
            (self._known.packets, self._packet_hashes, True),
        ):
            for value, number in zip(found, hashes, strict=True):
                if number not in self._reported:
                    self._reported.add(number)
                    yield Content(number, is_packet, msgspec.msgpack.encode(value))

    def encode(self, state: CheckState) -> tuple[int, bytes]:
        """The hash of a state, and its bytes."""
        self._update()
        packets = [self._packet_hashes[number] for number in state.in_flight]
        if not self._group.is_fifo:
            packets.sort()
        processes = [self._hashes[number] for number in state.processes]
        data = msgspec.msgpack.encode((processes, packets, state.pasts, self._encode_rest(state.rest)))
        return hash_of(data), data

    def _encode_rest(self, rest: Rest | None) -> list[Any] | None:
        if rest is None:
            return None
        unsaved = [
            (self._hashes[saved], [self._packet_hashes[number] for number in received])
            for saved, received in rest.unsaved
        ]
        return [rest.groups, sorted(rest.links), unsaved, *rest[3:]]

    def decode(self, data: bytes) -> CheckState:
        processes, packets, pasts, rest = msgspec.msgpack.decode(data)
        if rest is not None:
            groups, links, unsaved, *counts = rest
            kept = tuple(
                (self._numbers[saved], tuple(self._packet_numbers[each] for each in received))
                for saved, received in unsaved
            )
            rest = Rest(tuple(groups), frozenset(map(tuple, links)), kept, *counts)
        in_flight = self._group.arrange(tuple(self._packet_numbers[each] for each in packets))
        return CheckState(tuple(self._numbers[each] for each in processes), in_flight, tuple(pasts), rest)

    def _update(self) -> None:
        """Hash contents found since the last call."""
        for found, hashes, numbers in (
            (self._known.states, self._hashes, self._numbers),
            (self._known.packets, self._packet_hashes, self._packet_numbers),
        ):
            for number in range(len(hashes), len(found)):
                hashes.append(hash_of(msgspec.msgpack.encode(found[number])))
                numbers[hashes[-1]] = number


def hash_of(data: bytes) -> int:
    """64 bits of a hash that is the same everywhere, as a signed number."""
    return int.from_bytes(blake2b(data, digest_size=_HASH_BYTES).digest(), "little", signed=True)


def as_contents(rows: Iterable[dict[str, Any]]) -> Iterator[Content]:
    for row in rows:
        yield Content(row["hash"], row["is_packet"], row["data"])
