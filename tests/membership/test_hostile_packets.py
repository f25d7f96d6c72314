"""Whatever another process sends, a member refuses it with a `RemoteError` or continues."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.world import ChangingWorld
from antecede.membership.catalog import CHANGING
from antecede.membership.member import ChangingMember
from antecede.protocols.base import Packet, RemoteError

_PACKETS = 400
_OTHER_CONTENT = b"\x01"
_NUMBERS = (0, -1, 1, 2, 5, 1 << 40, (1 << 63) - 1)


def changed(value: Any, draw: random.Random) -> Any:
    """A value with one part of it replaced or left out; in packets within packets, too."""
    match value:
        case bool():
            return not value
        case int():
            return draw.choice((*_NUMBERS, value + 1, value - 1))
        case bytes():
            prefix = value[:1] if value[:1] == _OTHER_CONTENT else b""
            try:
                inner = changed(msgspec.msgpack.decode(value[len(prefix) :]), draw)
                return prefix + msgspec.msgpack.encode(inner)
            except (msgspec.DecodeError, OverflowError):
                return value[:-1]
        case list() if value:
            at = draw.randrange(len(value))
            return [
                *value[:at],
                *([changed(value[at], draw)] if draw.random() < 0.9 else []),
                *value[at + 1 :],
            ]
        case dict() if value:
            key = draw.choice(sorted(value, key=repr))
            rest = {each: value[each] for each in value if each != key}
            return rest | (
                {changed(key, draw): value[key]} if draw.random() < 0.4 else {key: changed(value[key], draw)}
            )
    return value


class HostileWorld(ChangingWorld):
    """Every packet that arrives also arrives changed, at a copy of the member."""

    draw = random.Random(0)
    tried = 0

    def _transmit(self, source: int, to: int) -> bool:
        queue = self.links.get((source, to))
        if queue and to not in self.crashed and HostileWorld.tried < _PACKETS and self.draw.random() < 0.5:
            HostileWorld.tried += 1
            self._try(source, self.kind.restore(self.members[to].save()), queue[0])
        return super()._transmit(source, to)

    def _try(self, source: int, member: ChangingMember, packet: Packet) -> None:
        try:
            data = msgspec.msgpack.encode(
                changed(msgspec.msgpack.decode(self.kind.encode(packet)), self.draw)
            )
        except OverflowError:
            return  # a number that cannot be encoded
        try:
            member.receive(source, self.kind.decode(data), 0)
            while member.deliver(0) is not None:
                pass
            member.report(0)
        except RemoteError:
            pass


@pytest.mark.parametrize("name", list(CHANGING))
def test_hostile_packets_raise_nothing_but_remote_errors(name: str) -> None:
    HostileWorld.tried, HostileWorld.draw = 0, random.Random(name)
    seed = 0
    while HostileWorld.tried < _PACKETS:
        RandomSchedule(CHANGING[name], f"hostile:{seed}", world=HostileWorld).run()
        seed += 1
