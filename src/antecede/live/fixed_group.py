"""A live group with a fixed list of members: nobody joins, leaves or is removed."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

from antecede.live.clock import Clock
from antecede.live.core import Core
from antecede.live.events import TimerFired
from antecede.live.group import Group
from antecede.live.inspection import FixedInspection
from antecede.live.operations.trace import NodeTrace
from antecede.live.problems import Reachability, describe_fork
from antecede.live.recovery import restore
from antecede.live.security.identity import Security
from antecede.live.security.signing import create_keyring
from antecede.live.settings import Settings
from antecede.live.stability import Stability
from antecede.live.store.journal import Journal
from antecede.live.transport.connections import Connections
from antecede.live.view import View, ViewMember
from antecede.protocols.base import LocalError

_REPAIR_PATIENCE = 1_000_000_000
"""How long a message may be missing before it is requested from others, in nanoseconds."""


class FixedGroup(Group):
    """A member of a group whose members are all known from the start."""

    _names: list[str]
    _core: Core
    _connections: Connections

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._roster = settings.roster()
        self._security = Security(settings)
        core = Core(
            self._roster.create_protocol(settings.me),
            traced=settings.trace is not None,
            durable=settings.store is not None,
            own=settings.own,
            signatures=create_keyring(self._security, settings, self._roster.names),
        )
        core.called = (settings.me,)
        # A correct member has about its limit in transit; four times that is not a delay but an attack.
        core.stability.max_undelivered = 4 * max(settings.limit, 1 << 20)
        super().__init__(settings, core, self._roster.names, clock)
        self._inspection = FixedInspection(core, self._names, self._clock)
        self._reachability = Reachability(self._roster, settings.me, core.stability)
        if why := settings.isolation():
            self._log.warning("%s", why)

    @property
    def me(self) -> str:
        return self.settings.me

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def partners(self) -> tuple[str, ...]:
        return tuple(self._names[peer] for peer in self._core.partners)

    @property
    def connected(self) -> tuple[str, ...]:
        return tuple(self._names[peer] for peer in self._connections.connected())

    @property
    def view(self) -> View:
        connected = {*self.connected, self.me}
        return View(
            {
                member.name: ViewMember(
                    member.name,
                    member.name,
                    member.at or "",
                    member.name in connected,
                    self._suspicions.since(rank),
                )
                for rank, member in enumerate(self._roster.members)
            }
        )

    async def remove(self, who: str) -> None:
        self._refuse_change()

    async def leave(self, timeout: float | None = None) -> None:
        self._refuse_change()

    def _refuse_change(self) -> NoReturn:
        raise LocalError("the list of members is fixed; name founders or a contact instead of peers")

    @property
    def web_address(self) -> str | None:
        return self._connections.web_address

    # Starting

    def _identity(self) -> dict[str, Any]:
        return {
            "group": self.settings.group,
            "member": self.settings.me,
            "protocol": self._roster.protocol.name,
            "members": self._roster.lines,
        }

    def _restore(self, journal: Journal) -> None:
        restore(self._core, journal)

    def _open_trace(self) -> NodeTrace | None:
        settings = self.settings
        if settings.trace is None:
            return None
        run, protocol = settings.group, self._roster.protocol.name
        return NodeTrace(
            settings.trace, run, settings.group, protocol, self._names, settings.me, self._core.trace
        )

    def _create_connections(self) -> Connections:
        return Connections(
            self.settings,
            self._roster,
            self._core,
            self._security,
            self._on_step,
            self._notify,
            self._on_heard,
            self.counts,
            self._clock,
            self._suspicions,
        )

    async def _open(self) -> None:
        self._deliveries = self._create_deliveries()
        self._suspicions.watch(self._core.partners)
        await self._connections.start()
        await self._serve_operators()
        self._report_forks()
        self._begin_ticking()

    def _behind(self) -> list[str]:
        me, matrix_clock = self._core.me, self._core.stability.matrix_clock
        return [
            name
            for name, row in zip(self._names, matrix_clock, strict=True)
            if row[me] < matrix_clock[me][me]
        ]

    # Broadcasting

    async def _until_all_know_addresses(self) -> None:
        """All wire versions that such groups use support addresses."""

    def _is_full(self) -> bool:
        limit, core = self.settings.limit, self._core
        return bool(core.application.untaken_own_bytes > limit or core.pending_bytes > limit)

    def _lag(self) -> tuple[str, str]:
        stability = self._core.stability
        who = ", ".join(self._names[member] for member in stability.lagging())
        return who, f"{stability.unstable_bytes:,} bytes are not stable; {who} lags"

    # Inspection

    def delivered(self) -> dict[str, int]:
        return dict(zip(self._names, self._stability().matrix_clock[self._core.me], strict=True))

    @property
    def unstable_bytes(self) -> int:
        return self._stability().unstable_bytes

    def _stability(self) -> Stability:
        if self._journal is None:
            self._driver.flush()  # without a store, broadcasts are accepted at once
        return self._core.stability

    def suspicion_timeouts(self) -> dict[str, float]:
        return {self._names[peer]: self._suspicions.timeout(peer) for peer in self._core.partners}

    def _is_member(self, name: str) -> bool:
        return name in self._names

    # Events

    def _on_heard(self, peer: int) -> None:
        if self._suspicions.hear(peer):
            self._tell("trusted", self._names[peer])

    def _on_tick(self) -> None:
        now = self._clock.now()
        if self._core.has_timer_due(now):
            self._core.step(TimerFired(now))
            self._on_step()
        self._connections.gossip(now, _REPAIR_PATIENCE)
        self._driver.tick()
        self._driver.stepped()  # a delivery may have revealed a fork, which must be recorded
        for peer in self._suspicions.check():
            self._tell("suspected", self._names[peer])
        self._report_forks()
        self._report_members("unreachable", self._reachability.missing(self.connected))
        self._report_members("paused", self._connections.paused())

    def _report_members(self, kind: Literal["paused", "unreachable"], texts: dict[str, str | None]) -> None:
        """By member, a description of its problem, or None if it has none."""
        for name, text in texts.items():
            if text is None:
                self._problems.end((kind, name))
            elif self._problems.begin((kind, name), kind, name, text):
                self._notify(kind, name, text)

    def _report_forks(self) -> None:
        divergences = {("forked", *key): each for key, each in self._core.stability.divergences.items()}
        for key in self._problems.keys("forked") - divergences.keys():
            self._problems.end(key)  # a third member had reported it, and the member itself says otherwise
        for key, divergence in divergences.items():
            origin, text = self._names[divergence.origin], describe_fork(divergence, self._names)
            if self._problems.begin(key, "forked", origin, text):
                self._notify("forked", origin, text)
