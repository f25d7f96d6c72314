"""A scenario: everything that decides a run, as one value that can be written down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import msgspec

from antecede import __version__
from antecede.errors import InputError
from antecede.protocols import catalog
from antecede.protocols.base import Layout, LocalError, Protocol
from antecede.sim import counter_rng
from antecede.sim.churn import link_changes
from antecede.sim.network import (
    Delay,
    DirectNetwork,
    Network,
    NodesModel,
    RelayedModel,
    RoutedModel,
    parse_delay,
)
from antecede.sim.network.faults import parse_fault
from antecede.sim.probes import PROBES, Probe
from antecede.sim.workload import (
    Once,
    OncePerWindow,
    Periodic,
    Poisson,
    RandomIntervals,
    Rounds,
    Scheduled,
    Workload,
)
from antecede.sim.world import LinkChange, Observer, World
from antecede.units import SECOND, duration

_SAMPLING = SECOND // 20

GROUP = "all"
"""The name of the one group of all peers, where groups have no names of their own."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of one protocol. Two equal scenarios leave the same trace, byte for byte.

    - `protocol`: a name of ours, or module:Class
    - `peers`, `seconds` (of sending; what is under way then still arrives), `seed`
    - `workload`: periodic or poisson, each peer sending `rate` messages a second; periodic sends
      come up to `jitter` of an interval late; drawn: at intervals like `interval`, a distribution written as
      `delay` is; once: each peer at any time in `seconds`; rounds: each peer sends `burst` messages at once,
      `rate` times a second; windows: each peer at any time in the first `jitter` of every interval; given:
      at the times in `sends`, a list of nanoseconds for each peer
    - `senders`: how many peers do so, spread over all; the others only answer
    - `silent`: peers that never send
    - `reply`: the share of deliveries that a peer answers at once
    - `delay`: 20ms, 1-100ms (uniform), normal:0-50ms (clipped), wild:1us-1s (over magnitudes),
      quantiles:1ms,3ms,20ms (as measured: as many between any two neighbours)
    - `network`: none, for a link with that delay between every two peers; or one of paper 002's or 004's:
      {model = "routed", ...}, {model = "nodes", ...} (docs/sweeps.md)
    - `count`: what a packet weighs in the network: its bytes on the wire, or as its paper counts
    - `fifo`: whether links keep order; by default what the protocol needs
    - `faults`: spike:1-2s:300ms, duplicate:1%:50ms, reorder:10%:200ms, loss:1%
    - `groups`: overlapping groups of peers by name, for protocols that take them; a message goes to one of
      its sender's groups
    - `layout`: how members are arranged, for protocols that are not flat (see docs/protocols)
    - `local_delay`: the delay between members of one site of the layout, where it is not `delay`
    - `skew`: clocks are ahead of the true time by up to this much, each by its own amount
    - `churn`: how many links a second open or close, for protocols that take it
    - `probes`: what else to measure, by name (docs/sweeps.md), from `warmup` seconds on
    - `payload` bytes a message; `most_messages`: stop sending after so many in all
    """

    protocol: str
    peers: int = 10
    seconds: float = 2.0
    seed: int = 1
    workload: Literal["periodic", "poisson", "drawn", "once", "rounds", "windows", "given"] = "periodic"
    rate: float = 10.0
    jitter: float = 0.5
    reply: float = 0.0
    delay: str = "1-100ms"
    fifo: bool | None = None
    faults: tuple[str, ...] = ()
    payload: int = 100
    most_messages: int | None = None
    groups: dict[str, tuple[int, ...]] | None = None
    layout: dict[str, Any] | None = None
    local_delay: str | None = None
    skew: str | None = None
    churn: float | None = None
    interval: str | None = None
    senders: int | None = None
    burst: int | None = None
    network: RoutedModel | NodesModel | RelayedModel | None = None
    count: Literal["wire", "paper"] = "wire"
    probes: tuple[str, ...] = ()
    warmup: float = 0.0
    silent: tuple[int, ...] = ()
    sends: tuple[tuple[int, ...], ...] | None = None

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
            "churn": (0, 1e6),
            "senders": (1, self.peers),
            "burst": (1, 1_000_000),
            "warmup": (0, self.seconds),
        }
        for field, (low, high) in limits.items():
            value = getattr(self, field)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{field} is {value}; it must be from {low:g} to {high:g}")
        unknown = [name for name in self.probes if name not in PROBES]
        if unknown:
            raise ValueError(f"probes: there is no '{unknown[0]}'; there are {', '.join(PROBES)}")
        for name, members in (self.groups or {}).items():
            known = set(members) & set(range(self.peers))
            if not members or len(known) < len(members):
                raise ValueError(f"groups: {name} must name peers from 0 to {self.peers - 1}, each once")
        if (self.workload == "given") != (self.sends is not None):
            raise ValueError(
                "sends and the workload given go together: the one says when, the other that it does"
            )
        for peer, times in enumerate(self.sends or ()):
            if list(times) != sorted(times) or min(times, default=0) < 0:
                raise ValueError(f"sends: the times of peer {peer} must be from 0 on, in their order")
        if self.sends is not None and len(self.sends) != self.peers:
            raise ValueError(f"sends: there are {len(self.sends)} lists of times for {self.peers} peers")
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

    def links(self) -> Network:
        """The network, as it is before anything is sent."""
        if self.network is not None:
            return self.network.build(self.peers, self.seed)
        fifo = self.protocol_class().links.fifo if self.fifo is None else self.fifo
        faults = [parse_fault(fault) for fault in self.faults]
        delay = parse_delay(self.delay)
        arranged = self.arrangement()
        if self.local_delay is None or arranged is None:
            return DirectNetwork(self.seed, delay, fifo, faults)
        return DirectNetwork(
            self.seed, delay, fifo, faults, parse_delay(self.local_delay), arranged.sites(self.peers)
        )

    def arrangement(self) -> Layout | None:
        """The layout, told of what the network promises; None if the protocol has none."""
        kind = self.protocol_class().layout
        if kind is None:
            return None
        given: Layout = (
            kind.default(self.peers) if self.layout is None else msgspec.convert(self.layout, kind)
        )
        given.validate(self.peers)
        return given.with_bounds(
            parse_delay(self.local_delay or self.delay).longest, duration(self.skew or "0")
        )

    def members(self) -> list[Protocol]:
        """All members of the group, as they start."""
        make: Any = self.protocol_class()
        if self.groups is not None:
            return list(make.with_groups(self.groups, self.peers))
        arranged = self.arrangement()
        if arranged is not None:
            return list(make.with_layout(self.peers, arranged))
        return list(make.group(self.peers))

    def world(
        self,
        members: Sequence[Protocol],
        observers: Sequence[Observer],
        probes: Sequence[Probe] = (),
        samples: Sequence[int] | None = None,
    ) -> World:
        """The run of these members, ready to begin; `samples` says when probes look, if not as usual."""
        looks = self.samples() if samples is None and probes else samples
        until = round(self.seconds * SECOND)
        return World(
            members,
            self.links(),
            self.load(),
            observers,
            until=until,
            most_messages=self.most_messages,
            payload=bytes(self.payload),
            groups=self.groups,
            senders=self.who_sends(),
            silent=self.silent,
            ahead=self.ahead(),
            as_paper=self.count == "paper",
            links=self.link_changes([cast(Any, member).neighbours for member in members])
            if self.churn
            else (),
            probes=probes,
            samples=looks or (),
        )

    def samples(self) -> range:
        """When probes look at all members."""
        return range(round(self.warmup * SECOND), round(self.seconds * SECOND), _SAMPLING)

    def who_sends(self) -> Sequence[int]:
        """Those who send by themselves, spread over all."""
        if self.senders is None:
            return range(self.peers)
        return [number * self.peers // self.senders for number in range(self.senders)]

    def messages_expected(self) -> float:
        """About how many will be sent, answers not counted."""
        if self.sends is not None:
            given = sum(len(times) for times in self.sends)
            return given if self.most_messages is None else min(given, self.most_messages)
        rate = self.rate
        if self.workload == "drawn":
            rate = SECOND / max(1, self._interval().longest)
        each = 1.0 if self.workload == "once" else rate * self.seconds
        many = len(self.who_sends()) * each * (self.burst or 1 if self.workload == "rounds" else 1)
        return many if self.most_messages is None else min(many, self.most_messages)

    def _interval(self) -> Delay:
        return parse_delay(self.interval or "70-90ms")

    def link_changes(self, overlay: Sequence[Sequence[int]]) -> list[LinkChange]:
        """The links that open and close, if each peer has these neighbours from the start."""
        standing = {(peer, other) for peer, others in enumerate(overlay) for other in others}
        until = round(self.seconds * SECOND)
        return link_changes(self.seed, self.peers, until, self.churn or 0.0, standing)

    def ahead(self) -> list[int]:
        """How far each peer's clock is ahead of the true time."""
        most = duration(self.skew or "0")
        drawn = counter_rng.key(self.seed, counter_rng.CLOCK)
        return [counter_rng.between(counter_rng.draw(drawn, peer), 0, most + 1) for peer in range(self.peers)]

    def load(self) -> Workload:
        interval = max(1, round(SECOND / self.rate))
        if self.workload == "poisson":
            return Poisson(self.seed, interval, self.reply)
        if self.workload == "drawn":
            return RandomIntervals(self.seed, self._interval(), self.reply)
        if self.workload == "once":
            return Once(self.seed, round(self.seconds * SECOND), self.reply)
        if self.sends is not None:
            return Scheduled(self.seed, self.sends, self.reply)
        if self.workload == "rounds":
            return Rounds(self.seed, interval, self.burst or 1, self.reply)
        if self.workload == "windows":
            return OncePerWindow(self.seed, interval, round(interval * self.jitter), self.reply)
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
    protocol = made.protocol_class()
    if made.groups is not None and not protocol.overlapping_groups:
        raise InputError(f"scenario: groups: {made.protocol} has one group of all peers")
    if made.layout is not None and protocol.layout is None:
        raise InputError(f"scenario: layout: the members of {made.protocol} are all alike")
    if made.churn and not protocol.dynamic_links:
        raise InputError(f"scenario: churn: the links of {made.protocol} stay as they are")
    texts: dict[str, tuple[Callable[[str], object], Sequence[str]]] = {
        "delay": (parse_delay, (made.delay,)),
        "local_delay": (parse_delay, (made.local_delay,) if made.local_delay else ()),
        "interval": (parse_delay, (made.interval,) if made.interval else ()),
        "skew": (duration, (made.skew,) if made.skew else ()),
        "faults": (parse_fault, made.faults),
    }
    for field, (parse, given) in texts.items():
        for text in given:
            try:
                parse(text)
            except InputError as error:
                raise InputError(f"scenario: {field}: {error}") from error
    try:
        made.arrangement()
    except (LocalError, msgspec.ValidationError) as error:
        known = f"; a layout of {made.protocol} has {', '.join(protocol.layout.__struct_fields__)}"
        raise InputError(f"scenario: layout: {error}{known}") from error
    return made
