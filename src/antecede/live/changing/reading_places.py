"""Where the readers of an encrypted group are, as far as one process knows (`secrecy.py`).

A member knows the view, and a super peer its phones. A phone knows neither: it trusts what members report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.live.changing.secret_messages import Reader, ReaderId, SecrecyState

if TYPE_CHECKING:
    from antecede.live.changing.core import ChangingCore
    from antecede.live.changing.phone import PhoneCore
    from antecede.live.changing.super_peer import SuperPeerCore

_OTHERS_SECONDS = 3.0
"""How long the designated member has time to report a departure to phones before this member does."""
_MOVING_SECONDS = 5.0
"""How long a phone that has left its slot has time to announce where it is now."""


class Places:
    """Readers' places as a member's core knows them."""

    def __init__(self, core: ChangingCore) -> None:
        self._core = core

    @property
    def own(self) -> tuple[int, int]:
        """This reader's address, and that of its super peer, if it is a phone."""
        return self._core.address, 0

    @property
    def others(self) -> set[int]:
        """The addresses of the other members."""
        return {*self._core.member.addresses.values()} - {self._core.address}

    @property
    def contact(self) -> int:
        """The address of the member that has admitted this one; 0 if this is a founder, or that member has
        left."""
        member = self._core.member
        admission = member.admissions.get(member.stream)
        return member.addresses.get(admission.origin, 0) if admission is not None else 0

    @property
    def author(self) -> str:
        """How envelopes name this process as their author."""
        return self._core.identity.label if self._core.has_phones else ""

    def has(self, reader: Reader) -> bool:
        """Whether a reader is where it claims to be."""
        if reader.behind:
            return self.is_in_view(reader.behind)
        stream = self._core.member.stream_at.get(reader.address)
        contact = None if stream is None else self._core.contact_of(stream)
        return self.is_in_view(reader.address) and contact is not None and contact.name == reader.name

    def is_in_view(self, address: int) -> bool:
        member = self._core.member
        stream = member.stream_at.get(address)
        return stream is not None and member.addresses.get(stream) == address


class PhonePlaces(Places):
    """Readers' places as a phone's core knows them."""

    _core: PhoneCore

    @property
    def own(self) -> tuple[int, int]:
        return self._core.address, self._core.hub

    @property
    def contact(self) -> int:
        return self._core.hub

    @property
    def author(self) -> str:
        return self._core.name

    def has(self, reader: Reader) -> bool:
        return True

    def is_in_view(self, address: int) -> bool:
        return True


class Departures:
    """The departures that a member must announce: of readers, and of addresses that may have keys.

    One member announces each departure: a phone's super peer, or else the first member of the view; if that
    does not happen, every member does.
    """

    def __init__(self, core: ChangingCore) -> None:
        self._core = core
        self._noticed: dict[ReaderId | int, float] = {}
        """When each departure was first noticed."""

    def find(self, state: SecrecyState, places: Places, now: float) -> tuple[list[ReaderId], list[int]]:
        """The readers and the addresses whose departure is to be announced now."""
        core = self._core
        is_first = core.me == min(core.member.addresses, default=-1)
        patience: dict[ReaderId | int, float] = {}
        if core.has_phones:
            phones = self._phones()
            for each, reader in state.readers.items():
                if state.gone.get(each, -1) >= reader.version:
                    continue
                if reader.behind == core.address:
                    if phones.get(reader.address) != reader.name:
                        patience[each] = 0.0 if self._is_expelled(reader.address) else _MOVING_SECONDS
                elif not places.has(reader):
                    patience[each] = 0.0 if is_first else _OTHERS_SECONDS
            for address in state.cuts.keys() - phones.keys():
                if not places.is_in_view(address) and address not in core.member.requests:
                    patience[address] = _MOVING_SECONDS
        for address in state.departed:
            patience[address] = 0.0 if is_first or address in state.cuts else _OTHERS_SECONDS
        self._noticed = {each: self._noticed.get(each, now) for each in patience}
        due = [each for each, seconds in patience.items() if now - self._noticed[each] >= seconds]
        return [each for each in due if isinstance(each, bytes)], [
            each for each in due if isinstance(each, int)
        ]

    def _phones(self) -> dict[int, str]:
        core = self._core
        return _as_super_peer(core).phones if core.has_phones else {}

    def _is_expelled(self, address: int) -> bool:
        return address in _as_super_peer(self._core).hub.site.refused


def _as_super_peer(core: ChangingCore) -> SuperPeerCore:
    return core  # type: ignore[return-value]
