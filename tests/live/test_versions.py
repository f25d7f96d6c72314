"""Wire format versions: negotiation, and whom members of a changing group refuse."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import msgspec
import pytest

from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import AttemptBegun, Founded
from antecede.live.changing.greeting import MemberGreeter, MemberGreeting
from antecede.live.events import Opened, PacketReceived
from antecede.live.transport.greeter import StaleGreetingError
from antecede.live.transport.links import PartnerLink
from antecede.live.versions import CHANGING_STORE, CHANGING_WIRE, FIXED_STORE, FIXED_WIRE, STORE
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.packets import VersionRequired
from antecede.protocols.base import RemoteError

ANA, BO, DANA = Contact("ana"), Contact("bo"), Contact("dana", bytes(8))


class Speaker:
    """A process that speaks the versions up to one."""

    def __init__(self, contact: Contact, speaks: int, life: int = 1) -> None:
        self.contact = contact
        self.core = ChangingCore(ChangingMbcp, contact.name)
        self.greeter = MemberGreeter(self.core, "room")
        self.core.step(Opened(f"{contact.name}{life}", life, speaks))
        self.core.step(AttemptBegun(contact, 0) if contact.nonce else Founded([ANA, BO], 0))

    def greet(self, other: Speaker) -> int:
        """Greet another process, which remembers that; its link."""
        greeting = self.greeting(other)
        link = other.greeter.find_link(greeting, 0, None)
        other.greeter.check_resumable(link, cast("Any", greeting))
        other.greeter.accept(link, greeting, 0)
        return link

    def greeting(self, other: Speaker) -> MemberGreeting:
        """As founders, they know each other's addresses."""
        link = (
            None if self.contact.nonce else self.core.find_link(self.contact.address, other.contact.address)
        )
        return self.greeter.call(self.contact.address, link, "")


def test_every_version_is_described_in_one_place() -> None:
    for versions in (FIXED_WIRE, CHANGING_WIRE, STORE):
        assert list(versions) == list(range(min(versions), max(versions) + 1))
        assert all(versions.values())
    assert {FIXED_STORE, CHANGING_STORE} <= STORE.keys()


@pytest.mark.parametrize(("mine", "theirs", "used"), [(2, 2, 2), (2, 1, 1), (1, 2, 1), (1, 1, 1)])
def test_two_members_use_the_greatest_version_that_both_speak(mine: int, theirs: int, used: int) -> None:
    ana, bo = Speaker(ANA, mine), Speaker(BO, theirs)
    link = bo.greet(ana)
    assert ana.core.version_with(link) == used
    partner = PartnerLink(cast("Any", ana.core), link, Counter())
    partner.open(cast("Any", bo.greeting(ana)), 0.0)
    assert partner.version == used


def test_members_without_a_common_version_refuse_each_other_naming_whom_to_upgrade() -> None:
    ana, bo = Speaker(ANA, 2), Speaker(BO, 2)
    for versions, who in (([7, 8], "ana"), ([0], "bo")):
        greeting = msgspec.structs.replace(bo.greeting(ana), versions=versions)
        with pytest.raises(RemoteError, match=rf"^bo speaks version .*, ana speaks 1 to 2: upgrade {who}$"):
            ana.greeter.find_link(greeting, 0, None)


def test_a_newcomer_must_speak_the_version_the_group_requires() -> None:
    ana, bo = Speaker(ANA, 2), Speaker(BO, 2)
    bo.greet(ana)
    with pytest.raises(RemoteError, match=r"^the group uses version 2 .*, and dana speaks 1: upgrade dana$"):
        Speaker(DANA, 1).greet(ana)
    Speaker(DANA, 2).greet(ana)


def test_a_newcomer_may_speak_an_older_version_while_a_member_does() -> None:
    ana, bo = Speaker(ANA, 2), Speaker(BO, 1)
    bo.greet(ana)
    Speaker(DANA, 1).greet(ana)


def test_a_member_that_has_spoken_a_later_version_cannot_downgrade() -> None:
    ana, bo = Speaker(ANA, 2), Speaker(BO, 2)
    link = bo.greet(ana)
    older = msgspec.structs.replace(bo.greeting(ana), versions=[1])
    with pytest.raises(
        RemoteError, match=r"^bo has spoken version 2 .*, and now speaks 1: upgrade bo again$"
    ):
        ana.greeter.find_link(older, 0, None)
    assert ana.core.version_with(link) == 2


def test_a_late_greeting_from_before_an_upgrade_is_not_refused() -> None:
    """It was in flight longer than the first greeting of the following life."""
    ana, bo, upgraded = Speaker(ANA, 2), Speaker(BO, 1), Speaker(BO, 2, life=2)
    late = bo.greeting(ana)
    upgraded.core.lineage = [*bo.core.lineage, *upgraded.core.lineage]
    upgraded.greet(ana)
    for called in (None, ana.greeting(bo)):  # whoever has called
        with pytest.raises(StaleGreetingError):
            ana.greeter.find_link(late, 0, called)


def test_a_packet_of_a_later_version_is_rejected() -> None:
    ana, bo = Speaker(ANA, 1), Speaker(BO, 1)
    link = bo.greet(ana)
    data = ChangingMbcp.encode(VersionRequired(2, 0))
    with pytest.raises(
        RemoteError, match="a VersionRequired of version 2 of the wire format, and ana speaks 1"
    ):
        ana.core.step(PacketReceived(link, 1, data, 0))
