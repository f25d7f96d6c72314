"""What else can happen to a member whose group changes; all of it is in the log (`live/events.py`)."""

from __future__ import annotations

import msgspec

from antecede.live.changing.contact import Contact


class Founded(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """The group begins with these members, in the order of their names; this one is among them."""

    founders: list[Contact]
    time: int


class AttemptBegun(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """This process is going to ask for admission, at an address that it has never used."""

    contact: Contact
    time: int


class LinkOpened(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """Somebody has greeted at one of this process's addresses, for the first time or from another place."""

    mine: int
    contact: Contact
    time: int


class JoinAsked(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """This process asks the member at the other end of a link to be admitted."""

    link: int
    time: int


class Sponsored(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """This member admits a process, with the state of its application between two deliveries."""

    address: int
    snapshot: bytes | None
    time: int


class Declined(msgspec.Struct, frozen=True, array_like=True, tag=29, gc=False):
    """This member does not admit a process that has asked it."""

    address: int
    time: int


class Started(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """The application of a new member has taken its sponsor's snapshot."""

    time: int


class Reported(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """This member reports its progress, and asks for what it lacks."""

    time: int


class LeaveAsked(msgspec.Struct, frozen=True, array_like=True, tag=27, gc=False):
    """The application leaves the group."""

    time: int


class RemoveAsked(msgspec.Struct, frozen=True, array_like=True, tag=28, gc=False):
    """A member is removed by this one."""

    stream: int
    time: int


MembershipRecord = (
    Founded
    | AttemptBegun
    | LinkOpened
    | JoinAsked
    | Sponsored
    | Declined
    | Started
    | Reported
    | LeaveAsked
    | RemoveAsked
)
