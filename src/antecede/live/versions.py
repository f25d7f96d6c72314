"""The versions of the wire and store formats: one list, with the changes of each.

*Wire.* A greeting lists the versions that its sender speaks, and a connection uses the greatest common one.
An upgraded member continues to talk to those that are not. So additions to the wire format belong to the
latest version below, or to a new one if that is released, and are sent only where they are understood:

- a frame, if `PartnerLink.version` is high enough: what this connection uses;
- a packet for one process, such as a report or a welcome, if `member.speaks_with(address)` is;
- a message, or what is in it, if `member.version` is: members retain messages and pass them on, also to some
  that their sender does not know yet. `membership/upgrading.py` says how members agree on it. The envelope of
  a body (`live/envelope.py`) goes to phones too, of any version: it has room for more elements, which earlier
  versions ignore.

A class of packets that is new has the version as `since`; whoever receives one too early rejects it.

The first of these may change at any time, and is not part of the core. The other two follow from the log, so
that a replay produces the same packets. For the same reason a core that uses an earlier version behaves as
that version did: a store that was left by `kill -9` is replayed by the code that it is upgraded to, and
partners compare the bytes (`tests/live/test_old_stores.py`).

*Stores.* The first write to a store of an earlier version is a checkpoint of this one. A store of a later
version is refused. New fields of records and states have defaults, which mean what the earlier version did.
"""

from __future__ import annotations

from collections.abc import Iterable

FIXED_WIRE = {
    5: "0.1.0: the first that later releases speak, too (docs/wire.md)",
}
"""The wire versions of groups with a fixed list of members."""

CHANGING_WIRE = {
    1: "members join, leave, are removed and return; phones",
    2: "0.1.0: members agree on the version of what they broadcast (`VersionRequired`); reports of what has "
    "changed (`ReportDelta`), and requests for them (`ReportRequest`); newcomers fetch large states "
    "(`StateOffer`), and may ask for retained messages (`HistoryRequest`); with keys, messages are signed, "
    "and whoever does not sign, as in version 1, is refused unless all are set not to (`sign = false`); "
    "messages may be for some members only; what a returning member brings back says who has broadcast it "
    "first; super peers tell which phones they have expelled (`Expulsion`)",
}
"""The wire versions of groups with dynamic membership."""
ADDRESSED_SINCE = 2
"""The first version with messages for some members only."""
AUTHORS_SINCE = 2
"""The first version in which messages that a returning member brings back name their original sender."""
STATES_SINCE = 2
"""The first version in which newcomers fetch large states."""

STORE = {
    8: "0.1.0, groups with a fixed list of members: the first that later releases read, too",
    9: "0.1.0, groups whose members come and go: versions of the wire format that others speak, the last "
    "reports on each link, states in files and retained messages, what members have signed",
}
"""Versions that can be read."""
FIXED_STORE, CHANGING_STORE = 8, 9
"""The version that is written."""


def greatest_shared(mine: Iterable[int], theirs: Iterable[int]) -> int | None:
    """The version that two processes use with each other; None if they share none.

    >>> greatest_shared([1, 2, 3], [2, 3, 4]), greatest_shared([1], [2])
    (3, None)
    """
    return max(set(mine) & set(theirs), default=None)


def describe_unshared(me: str, mine: list[int], other: str, theirs: list[int]) -> str:
    """Why two processes have no common version, and which of them to upgrade.

    >>> describe_unshared("ana", [2, 3], "bo", [1])
    'bo speaks version 1 of the wire format, ana speaks 2 to 3: upgrade bo'
    """
    older = other if max(theirs, default=0) < max(mine) else me
    both = f"version {_range(theirs)} of the wire format, {me} speaks {_range(mine)}"
    return f"{other} speaks {both}: upgrade {older}"


def _range(versions: list[int]) -> str:
    least, greatest = min(versions, default=0), max(versions, default=0)
    return str(least) if least == greatest else f"{least} to {greatest}"
