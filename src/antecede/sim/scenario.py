"""A scenario: everything that decides a run, as one value that can be written down."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from antecede import __version__
from antecede.errors import InputError, ProtocolError
from antecede.protocols import catalog
from antecede.protocols.base import Protocol
from antecede.sim.faults import parse_fault
from antecede.sim.metrics import Meter, Metrics
from antecede.sim.network import Direct, Network, parse_delay
from antecede.sim.units import SECOND
from antecede.sim.workload import Periodic, Poisson, Workload
from antecede.sim.world import Observer, World

GROUP = "all"
"""The name of the one group of all peers, where groups have no names of their own."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of one protocol. Two equal scenarios leave the same trace, byte for byte.

    - `protocol`: a name of ours, or module:Class
    - `peers`, `seconds` (of sending; what is under way then still arrives), `seed`
    - `workload`: periodic or poisson, each peer sending `rate` messages a second; periodic sends
      come up to `jitter` of an interval late
    - `reply`: the share of deliveries that a peer answers at once
    - `delay`: 20ms, 1-100ms (uniform), normal:0-50ms (clipped), wild:1us-1s (over magnitudes)
    - `fifo`: whether links keep order; by default what the protocol needs
    - `faults`: spike:1-2s:300ms, duplicate:1%:50ms, reorder:10%:200ms, loss:1%
    - `groups`: overlapping groups of peers by name, for protocols that take them; a message goes to one of
      its sender's groups
    - `payload` bytes a message; `most_messages`: stop sending after so many in all
    """

    protocol: str
    peers: int = 10
    seconds: float = 2.0
    seed: int = 1
    workload: Literal["periodic", "poisson"] = "periodic"
    rate: float = 10.0
    jitter: float = 0.5
    reply: float = 0.0
    delay: str = "1-100ms"
    fifo: bool | None = None
    faults: tuple[str, ...] = ()
    payload: int = 100
    most_messages: int | None = None
    groups: dict[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        limits: dict[str, tuple[float, float]] = {
            "peers": (1, 1_000_000),
            "seconds": (0, 1e9),
            "seed": (0, (1 << 64) - 1),
            "rate": (1e-9, 1e9),
            "jitter": (0, 1e6),
            "reply": (0, 1),
            "payload": (0, 1 << 30),
            "most_messages": (0, 1 << 62),
        }
        for field, (low, high) in limits.items():
            value = getattr(self, field)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{field} is {value}; it must be from {low:g} to {high:g}")
        for name, members in (self.groups or {}).items():
            known = set(members) & set(range(self.peers))
            if not members or len(known) < len(members):
                raise ValueError(f"groups: {name} must name peers from 0 to {self.peers - 1}, each once")
        answers = self.reply * (self.peers - 1)
        if answers >= 1 and self.most_messages is None:
            raise ValueError(
                f"reply {self.reply:g} makes {answers:g} answers of every message, without end; "
                f"take less than {1 / (self.peers - 1):g} or set most_messages"
            )

    def key(self) -> str:
        """A short name that is the run's own: readable, and different for every other scenario.

        The version counts, and a protocol of the user's own counts with its source, so that what was
        mended runs anew.
        """
        same = msgspec.convert(msgspec.to_builtins(self), Scenario)  # 2 seconds are 2.0 seconds
        fields = {name: value for name, value in msgspec.to_builtins(same).items() if value is not None}
        written = msgspec.json.encode(fields, order="sorted")
        made_by = f"{__version__} {catalog.fingerprint(self.protocol)}".encode()
        digest = hashlib.sha256(written + made_by).hexdigest()[:12]
        return f"{self.protocol.replace(':', '.')}-{self.peers}-{digest}"

    def protocol_class(self) -> type[Protocol]:
        return catalog.find(self.protocol)

    def network(self) -> Network:
        fifo = self.protocol_class().links.fifo if self.fifo is None else self.fifo
        faults = [parse_fault(fault) for fault in self.faults]
        return Direct(self.seed, parse_delay(self.delay), fifo, faults)

    def load(self) -> Workload:
        interval = max(1, round(SECOND / self.rate))
        if self.workload == "poisson":
            return Poisson(self.seed, interval, self.reply)
        return Periodic(self.seed, interval, round(interval * self.jitter), self.reply)

    def audiences(self) -> dict[str, tuple[int, ...]]:
        """The members of each group."""
        return {GROUP: tuple(range(self.peers))} if self.groups is None else self.groups

    def names(self) -> list[str]:
        """What the peers are called in traces."""
        width = len(str(self.peers - 1))
        return [f"p{peer:0{width}}" for peer in range(self.peers)]


def scenario(**fields: object) -> Scenario:
    """A scenario from named values, checked; a wrong one is an `InputError` that names it."""
    try:
        made = msgspec.convert(fields, Scenario)
    except msgspec.ValidationError as error:
        known = (
            f"; there are {', '.join(Scenario.__struct_fields__)}" if "unknown field" in str(error) else ""
        )
        raise InputError(f"scenario: {error}{known}") from error
    if made.groups is not None and not made.protocol_class().many_groups:
        raise InputError(f"scenario: groups: {made.protocol} has one group of all peers")
    made.protocol_class()
    for field, parse, texts in (("delay", parse_delay, (made.delay,)), ("faults", parse_fault, made.faults)):
        for text in texts:
            try:
                parse(text)
            except InputError as error:
                raise InputError(f"scenario: {field}: {error}") from error
    return made


def simulate(given: Scenario, observers: Sequence[Observer] = ()) -> Metrics:
    """Run a scenario, showing it to `observers`."""
    try:
        return _run(given, observers)
    except (Exception, SystemExit) as error:
        if given.protocol in catalog.PROTOCOLS or isinstance(error, MemoryError):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ProtocolError(
            f"protocol {given.protocol} raised {type(error).__name__}: {error} "
            f"({Path(where.filename).name}, line {where.lineno})"
        ) from error


def _run(given: Scenario, observers: Sequence[Observer]) -> Metrics:
    make: Any = given.protocol_class()
    members = make.group(given.peers) if given.groups is None else make.over(given.groups, given.peers)
    meter = Meter(given.peers)
    world = World(
        members,
        given.network(),
        given.load(),
        [meter, *observers],
        until=round(given.seconds * SECOND),
        most_messages=given.most_messages,
        payload=bytes(given.payload),
        groups=given.groups,
    )
    world.run()
    stuck = sum(len(member.waiting()) for member in members)
    return meter.metrics(world.packets, world.control_bytes, stuck, world.now)
