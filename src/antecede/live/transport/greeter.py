"""The greetings between two members, without I/O: they are composed and validated here.

Lineages (`lineage.py`) and chain values of packets (`outbox.py`) show whether both ends remember the same
link. A member that returns with an older or another store is refused for good, with an error that names the
message where its history diverges; a greeting that is merely late is not.
"""

from __future__ import annotations

from antecede.live.core import Core
from antecede.live.events import Life, PartnerMet
from antecede.live.lineage import MAX_LIVES, forked_at, is_earlier
from antecede.live.settings import Roster, Settings
from antecede.live.transport.frames import Greeting
from antecede.live.transport.outbox import ForkError
from antecede.live.versions import describe_unshared, greatest_shared
from antecede.protocols.base import RemoteError


class StaleGreetingError(ConnectionError):
    """A greeting that was overtaken: its sender has sent another one since.

    `refusal` is the answer to send. If the greeting was merely late, its sender has ended and nobody reads
    the answer.
    """

    def __init__(self, refusal: str = "") -> None:
        super().__init__("a greeting that was overtaken by a later one")
        self.refusal = refusal


class Greeter:
    """Composes and validates greetings for one member."""

    def __init__(self, settings: Settings, roster: Roster, core: Core) -> None:
        self._settings, self._roster, self._core = settings, roster, core
        self._names = roster.names
        self._attempts = 0
        self._latest: dict[int, tuple[Life, int]] = {}
        """For each partner, the life and the attempt of the latest greeting."""

    def compose(self, peer: int, token: str = "") -> Greeting:
        self._attempts += 1
        core = self._core
        return Greeting(
            min(core.wire_versions),
            self._settings.group,
            self._roster.protocol.name,
            self._roster.lines,
            self._settings.me,
            self._names[peer],
            core.lineage,
            core.partner_lineages.get(peer, []),
            self._attempts,
            core.durably_received[peer],
            core.durable_chain[peer],
            core.seals is not None,
            token,
            core.wire_versions,
        )

    def find_partner(self, greeting: Greeting, called: int | None) -> int:
        """The partner that sent a greeting; an error if it is from none."""
        mine, me, group = self._roster.lines, self._settings.me, self._settings.group
        versions = self._core.wire_versions
        if greatest_shared(versions, greeting.spoken) is None:
            raise RemoteError(describe_unshared(me, versions, greeting.me, greeting.spoken))
        if greeting.group != group:
            raise RemoteError(describe_other_group(greeting.group, me, group))
        if greeting.protocol != self._roster.protocol.name:
            raise RemoteError(describe_other_protocol(greeting.protocol, me, self._roster.protocol.name))
        if greeting.signed != (self._core.seals is not None):
            whose, other = ("it", me) if greeting.signed else (me, "it")
            raise RemoteError(
                f"{whose} requires that messages are signed, and {other} does not sign: set `sign` alike"
            )
        if greeting.members != mine:
            if sorted(greeting.members) == sorted(mine):
                raise RemoteError("it lists the members in another order than the wire format has them")
            more = ", ".join(sorted(set(greeting.members) - set(mine))) or "nobody else"
            less = ", ".join(sorted(set(mine) - set(greeting.members))) or "nobody else"
            raise RemoteError(f"it lists other members: {more} there, {less} at {me}; list the same at both")
        if greeting.you != me:
            raise RemoteError(f"it calls {greeting.you}, this is {me}")
        peer = self._names.index(greeting.me) if greeting.me in self._names else -1
        if peer not in self._core.partners or called not in (None, peer):
            expected = "a partner of this member" if called is None else self._names[called]
            raise RemoteError(f"{greeting.me} is not {expected}")
        check_honest(self._core, self._names, peer)
        return peer

    def check_resumable(self, peer: int, greeting: Greeting) -> None:
        """Raise a `ForkError` unless both sides remember the same state of the link."""
        if not greeting.lineage:
            raise RemoteError("its greeting names no life of its sender")
        if max(len(greeting.lineage), len(greeting.known)) > MAX_LIVES:
            raise RemoteError(f"its greeting lists more than {MAX_LIVES} lives")
        self._check_late(peer, greeting)
        known = self._core.partner_lineages.get(peer, [])
        for name, lineage, remembered in (
            (greeting.me, greeting.lineage, known),
            (self._settings.me, self._core.lineage, greeting.known),
        ):
            if (common := forked_at(lineage, remembered)) is not None:
                is_connected = name == greeting.me and peer in self._core.stability.connected
                raise ForkError(fork_text(name, common, is_connected))
        self._check_received(peer, greeting, is_new_life=not known or greeting.lineage[-1] != known[-1])

    def _check_late(self, peer: int, greeting: Greeting) -> None:
        """Raise a `StaleGreetingError` if its sender has sent another greeting since."""
        if is_earlier(greeting.lineage, self._core.partner_lineages.get(peer, [])):
            raise StaleGreetingError(_copy_text(greeting))
        if greeting.lineage and self._is_overtaken(peer, greeting):
            raise StaleGreetingError

    def _is_overtaken(self, peer: int, greeting: Greeting) -> bool:
        life, attempt = self._latest.get(peer, (None, 0))
        return greeting.lineage[-1] == life and greeting.attempt <= attempt

    def _check_received(self, peer: int, greeting: Greeting, is_new_life: bool) -> None:
        box, received = self._core.outboxes[peer], greeting.received
        if received > box.last:
            raise ForkError(_older_text(self._settings.me, self._core.lineage))
        if received < box.acked:
            if is_new_life:
                raise ForkError(_older_text(greeting.me, greeting.lineage))
            return  # a later acknowledgement has overtaken its greeting
        if greeting.chain != box.chain[received]:
            # It has other packets with these numbers, from a life that this store does not know.
            raise ForkError(_older_text(self._settings.me, self._core.lineage))

    def accept(self, peer: int, greeting: Greeting, now: int) -> None:
        """Remember the partner's current life."""
        self._latest[peer] = (greeting.lineage[-1], greeting.attempt)
        if self._core.partner_lineages.get(peer) != greeting.lineage:
            self._core.step(self._met(peer, greeting, now))

    def _met(self, peer: int, greeting: Greeting, now: int) -> PartnerMet:
        return PartnerMet(peer, greeting.lineage, now)


def check_honest(core: Core, names: list[str], peer: int) -> None:
    """Raise a `RemoteError` if a member is proven to have equivocated."""
    if (proof := core.equivocators.get(peer)) is not None:
        where = f"{names[peer]}:{proof[-1].first}"
        raise RemoteError(f"{names[peer]} has signed different messages under the same ids, from {where} on")


def describe_other_group(theirs: str, me: str, mine: str) -> str:
    return f"it is of group '{theirs}', {me} of '{mine}': set `group` alike"


def describe_other_protocol(theirs: str, me: str, mine: str) -> str:
    return f"it uses protocol {theirs}, {me} uses {mine}: set `protocol` alike"


_RESTART = "start the whole group again, with new stores at every member"


def fork_text(name: str, common: int, is_connected: bool = False) -> str:
    """Why a member without its former store is refused. `is_connected` if a process with its name has a
    connection."""
    if not common:
        twice = f"another process is connected as {name}: stop one of them, or else " if is_connected else ""
        return (
            f"{name} has another store than before, so what it had acknowledged is lost; "
            f"{twice}restore its store, or {_RESTART}"
        )
    return (
        f"{name} has an older store than before: its messages after {name}:{common} exist in two versions; "
        f"restore the latest store. `antecede store show --messages` prints what this one has accepted"
    )


def _copy_text(greeting: Greeting) -> str:
    name, common = greeting.me, greeting.lineage[-1].broadcasts
    return (
        f"{name} was started again on this store or a copy of it, and this process still runs: its messages "
        f"after {name}:{common} may exist in two versions; stop one, and keep the store of the other"
    )


def _older_text(name: str, lineage: list[Life]) -> str:
    after = f" after {name}:{lineage[-1].broadcasts}" if lineage else ""
    return (
        f"{name} has an older store than before: some of what it had sent or acknowledged{after} is lost; "
        f"restore the latest one, or {_RESTART}"
    )
