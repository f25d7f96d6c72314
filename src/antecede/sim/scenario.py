"""A scenario: everything that determines a run, as one value that can be written down."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, cast

import msgspec

from antecede import __version__
from antecede.errors import InputError
from antecede.membership.catalog import CHANGING
from antecede.membership.hub import HubMember
from antecede.protocols import catalog
from antecede.protocols.base import Layout, Protocol
from antecede.sim import build, counter_rng, scenario_checks
from antecede.sim.changes import Attach, Change, Join, Leave, PhoneChange, is_group_fault, plan
from antecede.sim.changing_overlap import DiagnosingOverlapWorld, OverlappingGroupsWorld, Seat
from antecede.sim.changing_sites import ChangingSitesWorld, DiagnosingSitesWorld
from antecede.sim.changing_world import ChangingGroupWorld
from antecede.sim.churn import link_changes
from antecede.sim.diagnosing_world import DiagnosingWorld
from antecede.sim.faulty_world import FaultyWorld
from antecede.sim.network import (
    GraphModel,
    Network,
    NodesModel,
    RelayedModel,
    RoutedModel,
    parse_delay,
    upper_bound,
)
from antecede.sim.probes import PROBES, Probe
from antecede.sim.scenario_detector import parse_detector
from antecede.sim.workload import Workload
from antecede.sim.world import LinkChange, Observer, World
from antecede.units import SECOND, parse_duration
from antecede.user_classes import fingerprint, names_user_class

GROUP = "all"
"""The name of the group of all peers, where a scenario names no groups."""

_SAMPLE_INTERVAL = SECOND // 20

_CHANGING_WORLDS = {
    (False, False): ChangingGroupWorld,
    (False, True): DiagnosingWorld,
    (True, False): ChangingSitesWorld,
    (True, True): DiagnosingSitesWorld,
}
"""The world of a group that changes, by whether it has phones and whether members test each other."""

_OVERLAPPING_WORLDS = {False: OverlappingGroupsWorld, True: DiagnosingOverlapWorld}
"""The world of several groups that change, by whether members test each other."""

_LIMITS: dict[str, tuple[float, float]] = {
    "peers": (1, 1_000_000),
    "seconds": (0, 1e9),
    "seed": (0, (1 << 64) - 1),
    "rate": (1e-9, 1e9),
    "jitter": (0, 1e6),
    "reply": (0, 1),
    "payload": (0, 1 << 30),
    "most_messages": (0, 1 << 62),
    "churn": (0, 1e6),
    "burst": (1, 1_000_000),
}
"""The lowest and highest value of each numeric field."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one protocol. Equal scenarios leave the same trace, byte for byte.

    - `protocol`: the name of a built-in protocol, or module:Class
    - `peers`, `seed`, `seconds` of sending; messages in flight at the end still arrive
    - `workload`: when peers send
        - periodic, poisson: `rate` messages per second from each peer; periodic sends are up to `jitter` of
          an interval late
        - drawn: at intervals distributed as `interval`, which is written like `delay`
        - once: each peer once, at any time in `seconds`
        - starts: each peer once, at a time distributed as `interval`, if that is in `seconds`
        - rounds: each peer sends `burst` messages at once, `rate` times a second
        - windows: each peer once in every interval, within its first `jitter` share
        - given: at the times in `sends`, a list of nanoseconds for each peer
    - `senders`: how many peers send of their own accord, spread over all; the others only answer
    - `silent`: peers that never send
    - `reply`: the share of deliveries that a peer answers at once
    - `delay`: 20ms, 1-100ms (uniform), normal:0-50ms (clipped), wild:1us-1s (log-uniform), exp:20ms,
      lognormal:20ms,0.5, pareto:5ms,1.5, quantiles:1ms,3ms,20ms (measured: equally many between any two
      neighbours)
    - `network`: by default a link with that delay between every two peers; or a graph in a file,
      {model = "graph", file = ...}, or a network of one of the papers: {model = "relayed", ...},
      {model = "routed", ...}, {model = "nodes", ...} (docs/sweeps.md)
    - `overlay`: who is linked to whom, for protocols that flood: hypercube, ring, line, star,
      random,degree=4, graph,file=NAME
    - `count`: what a packet weighs in the network: its bytes on the wire, or as its paper counts them
    - `fifo`: whether links keep order; by default what the protocol requires
    - `faults`: of packets: spike:1-2s:300ms, duplicate:1%:50ms, reorder:10%:200ms, loss:1%; of processes:
      crash:1s:3 (for good), crash:1-2s:3 (with a restart), suspect:1-2s:3, partition:1-2s:0,1,2
    - `groups`: overlapping groups of peers by name, for protocols that support them; a message goes to one of
      its sender's groups
    - `layout`: how members are arranged, for protocols whose members differ (docs/protocols)
    - `local_delay`: the delay within a site of the layout, if it is not `delay`
    - `skew`: each peer's clock is ahead of true time by a fixed amount of up to this much
    - `churn`: changes of the group: join:1s, leave:1s:3, remove:1s:3, poisson:2 (changes a second),
      poisson:2:10% (of those that depart crash); `peers` are the members at the start. With `groups`,
      join:1s:a (a new process joins group a), join:1s:a:3 (process 3 does), leave:1s:3:a, remove:1s:3:a;
      leave:1s:3 and remove:1s:3 are of all groups. Where members have
      phones: phones:5 (at the start), attach:1s:2 (at super peer 2), detach:1s:7, move:1s:7:2, roam:2
      (changes of phones a second); processes are numbered as they come. A number is how many links per
      second open or close, for protocols that support it
    - `detector`: how members of a group that changes find out who is down: adaptive,report=100ms,remove=2s
      (they report so often, and remove who was suspected for so long, or never), or none
    - `probes`: further measurements by name (docs/sweeps.md), from `warmup` seconds on
    - `payload`: bytes of each message; `most_messages`: stop sending after this many in all

    `delay`, `network`, `overlay`, `workload` and `probes` also take classes of the user's own, as
    `module:Class,key=value` (`user_classes`).
    """

    protocol: str
    peers: int = 10
    seconds: float = 2.0
    seed: int = 1
    workload: str = "periodic"
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
    churn: float | tuple[str, ...] | None = None
    interval: str | None = None
    senders: int | None = None
    burst: int | None = None
    network: RoutedModel | NodesModel | RelayedModel | GraphModel | str | None = None
    count: Literal["wire", "paper"] = "wire"
    probes: tuple[str, ...] = ()
    warmup: float = 0.0
    silent: tuple[int, ...] = ()
    sends: tuple[tuple[int, ...], ...] | None = None
    overlay: str | None = None
    detector: str | None = None

    def __post_init__(self) -> None:
        self._check_limits()
        self._check_names()
        self._check_groups()
        self._check_sends()
        self._check_replies_end()

    def _check_limits(self) -> None:
        limits = _LIMITS | {"senders": (1, self.peers), "warmup": (0, self.seconds)}
        for field, (low, high) in limits.items():
            value = getattr(self, field)
            if value is not None and not isinstance(value, tuple) and not low <= value <= high:
                raise ValueError(f"{field} is {value}; it must be from {low:g} to {high:g}")

    def _check_names(self) -> None:
        known = {"probes": (self.probes, PROBES), "workload": ((self.workload,), build.WORKLOADS)}
        for field, (names, ours) in known.items():
            unknown = [name for name in names if name not in ours and not names_user_class(name)]
            if unknown:
                raise ValueError(
                    f"{field}: there is no '{unknown[0]}'; there are {', '.join(ours)}, or your own as "
                    "module:Class"
                )

    def _check_groups(self) -> None:
        for name, members in (self.groups or {}).items():
            valid = set(members) & set(range(self.peers))
            if not members or len(valid) < len(members):
                raise ValueError(f"groups: {name} must name peers from 0 to {self.peers - 1}, each once")

    def _check_sends(self) -> None:
        if (self.workload == "given") != (self.sends is not None):
            raise ValueError("sends and the workload given go together: set both, or neither")
        for peer, times in enumerate(self.sends or ()):
            if list(times) != sorted(times) or min(times, default=0) < 0:
                raise ValueError(f"sends: the times of peer {peer} must be from 0 on, in ascending order")
        if self.sends is not None and len(self.sends) != self.peers:
            raise ValueError(f"sends: there are {len(self.sends)} lists of times for {self.peers} peers")

    def _check_replies_end(self) -> None:
        """Replies are a branching process, which must die out unless messages are limited."""
        answers = self.reply * (self.peers - 1)
        if answers >= 1 and self.most_messages is None:
            raise ValueError(
                f"with reply {self.reply:g} every message causes {answers:g} answers, without end; "
                f"take less than {1 / (self.peers - 1):g} or set most_messages"
            )

    def key(self) -> str:
        """A readable name that no other scenario has.

        It depends on Antecede's version, on the source of every module of the user's own that is named and
        on the files that are, so that a run is repeated once any of these has changed.
        """
        same = msgspec.convert(msgspec.to_builtins(self), Scenario)  # 2 seconds equal 2.0 seconds.
        fields = {name: value for name, value in msgspec.to_builtins(same).items() if value is not None}
        written = msgspec.json.encode(fields, order="sorted")
        code = f"{__version__} {catalog.fingerprint(self.protocol)}"
        code += fingerprint(build.user_class_names(self)) + "".join(build.file_digests(self))
        digest = hashlib.sha256(written + code.encode()).hexdigest()[:12]
        return f"{self.protocol.replace(':', '.')}-{self.peers}-{digest}"

    def protocol_class(self) -> type[Protocol]:
        """The protocol, as members of a group that changes if this one does."""
        fixed = catalog.find_protocol(self.protocol)
        return CHANGING[self.protocol] if self.is_changing else fixed

    # Changes of the group.

    @property
    def group_churn(self) -> tuple[str, ...]:
        """The changes that members make."""
        return self.churn if isinstance(self.churn, tuple) else ()

    @property
    def link_churn(self) -> float:
        return self.churn if isinstance(self.churn, float) else 0.0

    @property
    def has_changes(self) -> bool:
        """Whether anything happens to processes or to the group."""
        return bool(self.group_churn or self.detector or any(map(is_group_fault, self.faults)))

    @property
    def is_changing(self) -> bool:
        """Whether members take part in changes. Where a protocol's group is fixed, processes may still
        crash."""
        return self.has_changes and self.protocol in CHANGING

    @property
    def has_overlapping_changes(self) -> bool:
        """Whether there are several groups that change."""
        return self.is_changing and self.groups is not None

    def seats(self) -> list[Seat]:
        """The process and the group of each address at the start, if there are several groups that change."""
        groups = self.groups or {}
        return [Seat(peer, group) for group, peers in groups.items() for peer in sorted(peers)]

    def changes(self) -> list[Change]:
        """All changes, ordered by time."""
        return plan(self.faults, self.group_churn, self.seed, round(self.seconds * SECOND))

    def most_processes(self) -> int:
        """The most processes that a run may have: processes that join or return get an address each time they
        ask."""
        if not self.is_changing:
            return self.peers
        changes = self.changes()
        phones = sum(isinstance(each, Attach) for each in changes)
        # All phones may have to return whenever a super peer is gone.
        times = 1 + sum(not isinstance(each, PhoneChange | Join | Leave) for each in changes)
        if self.groups is not None:
            return self.peers + len(self.seats()) + len(self.groups) * (2 * len(changes) + 16)
        return self.peers + 2 * len(changes) + 16 + phones * times

    # The parts of a run.

    def members(self) -> list[Protocol]:
        """All members of the group, in their initial state."""
        protocol: Any = self.protocol_class()
        if self.has_overlapping_changes:
            addresses: dict[str, list[int]] = {}
            for address, seat in enumerate(self.seats()):
                addresses.setdefault(seat.group, []).append(address)
            return list(protocol.founders_of(addresses, len(self.seats())))
        if self.is_changing:
            return list(protocol.founders(self.peers, self.peers))
        if self.groups is not None:
            return list(protocol.with_groups(self.groups, self.peers))
        if (neighbours := self.neighbours()) is not None:
            return list(protocol.on_overlay(neighbours))
        layout = self.resolved_layout()
        if layout is not None:
            return list(protocol.with_layout(self.peers, layout))
        return list(protocol.group(self.peers))

    def world(
        self,
        members: Sequence[Protocol],
        observers: Sequence[Observer],
        probes: Sequence[Probe] = (),
        sample_times: Sequence[int] | None = None,
    ) -> World:
        """The world of these members, before the first event; probes sample at `sample_times`, if given."""
        if sample_times is None:
            sample_times = self.sample_times() if probes else ()
        overlay = [cast(Any, member).neighbours for member in members] if self.link_churn else []
        kind: Any = World
        more: dict[str, Any] = {}
        if self.has_changes:
            kind, more = FaultyWorld, {"changes": self.changes(), "seed": self.seed}
        if self.is_changing:
            detector = parse_detector(self.detector)
            has_phones = issubclass(self.protocol_class(), HubMember)
            kind = _CHANGING_WORLDS[has_phones, detector.test is not None]
            more |= {"detector": detector, "most_processes": self.most_processes()}
            more["joiners_send"] = self.senders is None
        groups, clock_offsets = self.groups, self.clock_offsets()
        if self.has_overlapping_changes:
            kind = _OVERLAPPING_WORLDS[detector.test is not None]
            more |= {"seats": self.seats(), "processes": self.peers}
            groups, clock_offsets = None, [clock_offsets[seat.process] for seat in self.seats()]
        world: World = kind(
            members,
            self.build_network(),
            self.build_workload(),
            observers,
            until=round(self.seconds * SECOND),
            most_messages=self.most_messages,
            payload=bytes(self.payload),
            groups=groups,
            senders=self.sending_peers(),
            silent=self.silent,
            clock_offsets=clock_offsets,
            paper_sizes=self.count == "paper",
            link_changes=self.link_changes(overlay) if self.link_churn else (),
            probes=probes,
            sample_times=sample_times,
            isolates=self.protocol not in catalog.PROTOCOLS,
            **more,
        )
        return world

    def build_network(self) -> Network:
        return build.build_network(self)

    def resolved_layout(self) -> Layout | None:
        """The layout with the network's delay and clock bounds; None if the protocol has no layout."""
        kind = self.protocol_class().layout
        if kind is None:
            return None
        layout: Layout = (
            kind.default(self.peers) if self.layout is None else msgspec.convert(self.layout, kind)
        )
        layout.validate(self.peers)
        delay = self.local_delay or self.delay
        is_bounded = self.protocol_class().links.bounded_delays
        longest = upper_bound(delay) if is_bounded else parse_delay(delay).longest or 0
        return layout.with_bounds(longest, parse_duration(self.skew or "0"))

    def build_workload(self) -> Workload:
        return build.build_workload(self)

    def neighbours(self) -> list[tuple[int, ...]] | None:
        """The neighbours of each peer, if the scenario names an overlay."""
        return None if self.overlay is None else build.build_overlay(self.overlay, self.peers, self.seed)

    def sending_peers(self) -> Sequence[int]:
        """The peers that send of their own accord, spread over all."""
        if self.senders is None:
            return range(self.peers)
        return [number * self.peers // self.senders for number in range(self.senders)]

    def link_changes(self, overlay: Sequence[Sequence[int]]) -> list[LinkChange]:
        """The links that open and close, beside the overlay's, which lists the neighbours of each peer."""
        permanent = {(peer, other) for peer, others in enumerate(overlay) for other in others}
        until = round(self.seconds * SECOND)
        return link_changes(self.seed, self.peers, until, self.link_churn, permanent)

    def clock_offsets(self) -> list[int]:
        """How far each peer's clock is ahead of true time."""
        most = parse_duration(self.skew or "0")
        key = counter_rng.key(self.seed, counter_rng.CLOCK)
        return [counter_rng.between(counter_rng.draw(key, peer), 0, most + 1) for peer in range(self.peers)]

    def sample_times(self) -> range:
        """When probes sample the members."""
        return range(round(self.warmup * SECOND), round(self.seconds * SECOND), _SAMPLE_INTERVAL)

    def expected_messages(self) -> float:
        """The approximate number of messages that will be sent, not counting replies."""
        most = float("inf") if self.most_messages is None else self.most_messages
        if self.sends is not None:
            return min(sum(len(times) for times in self.sends), most)
        rate = self.rate
        if self.workload == "drawn":
            rate = SECOND / max(1, parse_delay(self.interval or "70-90ms").longest or SECOND)
        by_peer = 1.0 if self.workload in ("once", "starts") else rate * self.seconds
        burst = self.burst or 1 if self.workload == "rounds" else 1
        return min(len(self.sending_peers()) * by_peer * burst, most)

    def audiences(self) -> dict[str, tuple[int, ...]]:
        """The members of each group."""
        return {GROUP: tuple(range(self.peers))} if self.groups is None else self.groups

    def peer_names(self) -> list[str]:
        """The names of the peers in traces."""
        width = len(str(self.peers - 1))
        return [f"p{peer:0{width}}" for peer in range(self.most_processes())]


def scenario(**fields: object) -> Scenario:
    """A validated scenario; an invalid field is an `InputError` that names it."""
    try:
        written = build.written_fields(fields)
        created = msgspec.convert(written, Scenario)
    except msgspec.ValidationError as error:
        if "protocol" not in fields:
            raise InputError(
                'scenario: protocol is missing; write protocol = "mbcp", or another one that '
                "antecede protocols lists"
            ) from error
        known = ""
        if "unknown field" in str(error):
            ours = Scenario.__struct_fields__
            near = [
                close for name in fields if name not in ours for close in get_close_matches(name, ours, 1)
            ]
            known = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(ours)}"
        raise InputError(f"scenario: {error}{known}") from error
    scenario_checks.check(created)
    if "delay" in written:
        scenario_checks.check_delay_is_used(created)
    return created
