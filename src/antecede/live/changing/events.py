"""Further events of a member in a dynamic group; all of them are logged (`live/events.py`)."""

from __future__ import annotations

import msgspec

from antecede.live.changing.contact import Contact
from antecede.live.changing.snapshots import SnapshotTransfer


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """The answer to a greeting on a link that the receiver has dropped, or at an address that it has given
    up."""

    is_forgotten: bool = False
    """Whether the receiver has forgotten the sender: every member had all of its messages, or it was never a
    member."""
    stream: int = -1
    cut: int = -1
    """The sender's stream and its last message, if the sender was removed."""
    view: dict[int, int] = {}
    """If the receiver was called at a former address: the members that it knows in its current incarnation,
    and their addresses."""
    contacts: dict[int, bytes] = {}
    """The addresses of these members."""


class Founded(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """The group begins with these members, sorted by name, including this one."""

    founders: list[Contact]
    time: int
    forwards: bool = False
    """Whether this member forwards messages to those that it admits. Earlier versions did not, and a replay
    must produce the same packets."""


class AttemptBegun(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """This process is going to ask for admission, at an address that it has never used."""

    contact: Contact
    time: int
    forwards: bool = False
    """As with `Founded`."""


class Abandoned(msgspec.Struct, frozen=True, array_like=True, tag=34, gc=False):
    """This process gives up an attempt to join: it is welcomed to a state that it no longer has."""

    address: int
    time: int


class LinkOpened(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """A process has greeted at one of this process's addresses, for the first time or from another place."""

    mine: int
    contact: Contact
    time: int


class JoinAsked(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """This process asks the member at the other end of a link for admission."""

    link: int
    time: int
    history: bool = False
    """Whether it wants the retained messages instead of a snapshot."""


class Sponsored(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """This member admits a process, with the state of its application between two deliveries."""

    address: int
    snapshot: bytes | None
    time: int
    state: bytes = b""
    """Instead, a `WelcomeState`, if the newcomer has already fetched most of it."""


class TransferBegun(msgspec.Struct, frozen=True, array_like=True, tag=44, gc=False):
    """This member has prepared a state in files for a newcomer, which fetches it before it is admitted."""

    address: int
    transfer: SnapshotTransfer
    time: int


class Declined(msgspec.Struct, frozen=True, array_like=True, tag=29, gc=False):
    """This member declines a process's request for admission."""

    address: int
    time: int


class Started(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """The application of a new member has restored its sponsor's snapshot."""

    time: int


class Reported(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """This member reports its progress, and requests the messages it is missing."""

    time: int
    asks: bool = False
    """Whether it waits for the reports of others."""


class LeaveAsked(msgspec.Struct, frozen=True, array_like=True, tag=27, gc=False):
    """The application asks to leave the group."""

    time: int


class RemoveAsked(msgspec.Struct, frozen=True, array_like=True, tag=28, gc=False):
    """This member removes another one."""

    stream: int
    time: int


class RoutesChanged(msgspec.Struct, frozen=True, array_like=True, tag=33, gc=False):
    """Where members forward messages: avoid these suspected members, and use these trusted ones again."""

    suspected: list[int]
    trusted: list[int]
    time: int


class MoveAsked(msgspec.Struct, frozen=True, array_like=True, tag=40, gc=False):
    """This phone asks the super peer at the other end of a link for a slot, to move there."""

    link: int
    time: int


class SuperPeersLost(msgspec.Struct, frozen=True, array_like=True, tag=41, gc=False):
    """This phone cannot reach the super peers at these addresses. If it relies on one of them, its
    incarnation ends here, and it returns as another one with its backlog."""

    addresses: list[int]
    time: int


class PartnerGone(msgspec.Struct, frozen=True, array_like=True, tag=30, gc=False):
    """The process at the other end of a link says that it no longer has this link."""

    link: int
    answer: Gone
    time: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=31, gc=False):
    """Links to strangers, and former addresses of this process, that are no longer needed."""

    links: list[int]
    addresses: list[int]
    time: int


class Expelled(msgspec.Struct, frozen=True, array_like=True, tag=42, gc=False):
    """This super peer retires the slot of a phone."""

    address: int
    time: int


class StabilityTold(msgspec.Struct, frozen=True, array_like=True, tag=43, gc=False):
    """This super peer announces to its phones what is stable."""

    time: int


class Aged(msgspec.Struct, frozen=True, array_like=True, tag=32, gc=False):
    """Entries that were already remembered at the last such event are forgotten."""

    time: int


class Signed(msgspec.Struct, frozen=True, array_like=True, tag=60, gc=False):
    """Only in the log: this process's signature on a message that a later record produces. By the time of a
    replay its key may have changed."""

    stream: int
    seq: int
    signature: bytes
    time: int


class ReadingKeyMade(msgspec.Struct, frozen=True, array_like=True, tag=61, gc=False):
    """In an encrypted group: this process has reading keys, which derive from this record."""

    seed: bytes
    time: int


class ReadingBegun(msgspec.Struct, frozen=True, array_like=True, tag=62, gc=False):
    """In an encrypted group: this process was admitted, and its contact offers these keys."""

    offer: bytes
    """An encoded `Offer`; empty with the history."""
    has_history: bool
    time: int


class InGroup(msgspec.Struct, frozen=True, array_like=True, tag=45, gc=False):
    """Only in the log of a process that may be in several groups: the group to which the following records
    belong."""

    group: str
    time: int


MembershipRecord = (
    InGroup
    | Founded
    | AttemptBegun
    | Abandoned
    | LinkOpened
    | JoinAsked
    | Sponsored
    | TransferBegun
    | Declined
    | Started
    | Reported
    | LeaveAsked
    | RemoveAsked
    | RoutesChanged
    | MoveAsked
    | SuperPeersLost
    | Expelled
    | StabilityTold
    | PartnerGone
    | Dropped
    | Aged
    | Signed
    | ReadingKeyMade
    | ReadingBegun
)
