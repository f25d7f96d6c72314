"""How members are divided into subgroups: the settings, and the ranks and the layout that follow from
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol as Interface
from typing import Self, TypeVar

import msgspec

from antecede.errors import InputError
from antecede.protocols.hcg import Basic, Hcg
from antecede.protocols.hcg.confirmed import BoundedLayout, ConfirmedBasic, ConfirmedHcg
from antecede.units import parse_duration

LIVE: dict[str, type[ConfirmedHcg]] = {Hcg.name: ConfirmedHcg, Basic.name: ConfirmedBasic}
"""The classes for live groups, by the name of the protocol."""
_CLOCKS = {"real": "rt", "linear": "lt", "vector": "vt"}
_NANOSECONDS_PER_MS = 1_000_000


class Subgroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clock of a subgroup and, on real time, the promised bounds of its links and clocks."""

    clock: str
    """real, linear or vector."""
    longest_delay: str | None = None
    """On real time: the longest delay of a packet between two members."""
    skew: str | None = None
    """On real time: the largest difference between the clocks of two members."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse one word, or for real time three.

        >>> Subgroup.parse("real 50ms 10ms")
        Subgroup(clock='real', longest_delay='50ms', skew='10ms')
        """
        clock, *bounds = text.split()
        if len(bounds) not in (0, 2):
            raise InputError(f"subgroups: '{text}' is not like vector, linear or real 50ms 10ms")
        return cls(clock, *bounds)

    def bounds(self) -> tuple[int, int]:
        """The longest delay and the largest difference between two clocks, in nanoseconds."""
        return parse_duration(self.longest_delay or "0"), parse_duration(self.skew or "0")

    def validate(self, gateway: str) -> None:
        where = f"subgroups: {gateway}"
        if self.clock not in _CLOCKS:
            raise InputError(f"{where}: its clock is real, linear or vector, not '{self.clock}'")
        if self.clock != "real" and (self.longest_delay or self.skew):
            raise InputError(f"{where}: a {self.clock} clock needs no longest_delay and no skew")
        if self.clock == "real" and (self.longest_delay is None or self.skew is None):
            raise InputError(f"{where}: real time needs a longest_delay and a skew, such as 50ms and 10ms")
        try:
            longest, _ = self.bounds()
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if self.clock == "real" and longest == 0:
            raise InputError(f"{where}: a longest_delay of 0 cannot be kept")

    def __str__(self) -> str:
        """The notation that `parse` reads, the same for the same bounds."""
        return " ".join([self.clock, *(map(_text, self.bounds()) if self.clock == "real" else ())])


def _text(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, _NANOSECONDS_PER_MS)
    return f"{nanoseconds}ns" if rest else f"{whole}ms"


class Named(Interface):
    """A member in the settings."""

    @property
    def name(self) -> str: ...
    @property
    def behind(self) -> str | None: ...


Someone = TypeVar("Someone", bound=Named)


def arrange(
    members: Sequence[Someone], subgroups: Mapping[str, Subgroup]
) -> tuple[list[Someone], list[str], BoundedLayout]:
    """The members in the order of their ranks, the lines that must be the same at every member, and the
    layout.

    Subgroups are ordered by the names of their gateways. A gateway with nobody behind it is a subgroup of its
    own, whose clock makes no difference.
    """
    gateways = sorted((each for each in members if each.behind is None), key=lambda each: each.name)
    names = {each.name for each in gateways}
    for name in subgroups:
        if name not in names:
            raise InputError(f"subgroups: {name} is not among the gateways, who are behind nobody")
    for each in members:
        if each.behind is not None and each.behind not in names:
            raise InputError(f"{each.name} is behind {each.behind}, who is behind {_who(members, each)}")
    order: list[Someone] = []
    lines: list[str] = []
    kinds: list[str] = []
    bounds: list[tuple[int, int]] = []
    for gateway in gateways:
        inside = sorted((each for each in members if each.behind == gateway.name), key=lambda each: each.name)
        if inside and gateway.name not in subgroups:
            raise InputError(f"subgroups: which clock has that of {gateway.name}? real, linear or vector")
        subgroup = subgroups.get(gateway.name, Subgroup("vector"))
        subgroup.validate(gateway.name)
        order += [gateway, *inside]
        lines += [f"{gateway.name} {subgroup}", *(f"{each.name} behind {gateway.name}" for each in inside)]
        kinds.append(f"{_CLOCKS[subgroup.clock]}:{1 + len(inside)}")
        bounds.append(subgroup.bounds())
    return order, lines, BoundedLayout(kinds, bounds=tuple(bounds))


def _who(members: Sequence[Someone], member: Someone) -> str:
    return next((str(each.behind) for each in members if each.name == member.behind), "nobody here")


def parse_lines(lines: Sequence[str]) -> tuple[list[tuple[str, str | None]], dict[str, Subgroup]]:
    """Names, each with the one it is behind, and subgroups, from the lines that `arrange` returns."""
    members: list[tuple[str, str | None]] = []
    subgroups: dict[str, Subgroup] = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        word, _, gateway = rest.partition(" ")
        if word == "behind":
            members.append((name, gateway))
        else:
            members.append((name, None))
            subgroups[name] = Subgroup.parse(rest)
    return members, subgroups
