"""Membership changes as scenarios write them: which processes join, leave, crash or are removed, and when.

`faults` lists failures: crashes, false suspicions and partitions. `churn` lists operations of members: they
join, leave and remove others, at given or random times. Where groups overlap, a process joins and leaves
single groups; faults affect the process as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from antecede.errors import InputError
from antecede.sim import counter_rng
from antecede.sim.network.faults import parse_share
from antecede.units import SECOND, parse_duration, parse_range


class Crash(NamedTuple):
    """A process stops. If it restarts, it has its former state, and packets sent to it meanwhile still
    arrive. If it stops for good, the last packets that it has sent on each link may be lost."""

    time: int
    peer: int
    restart: int | None = None


class Suspicion(NamedTuple):
    """A member is suspected, whether or not it is alive: by all others, or by one."""

    time: int
    end: int
    peer: int
    by: int | None = None


class Partition(NamedTuple):
    """Nothing arrives between these processes and the others; packets in flight arrive when the partition
    heals."""

    time: int
    end: int
    peers: frozenset[int]


class Join(NamedTuple):
    """A process asks a member to be admitted: a given one, or any.

    Where groups overlap, it joins a given one, or any; it is a new process, a given one, or any.
    """

    time: int
    contact: int | None = None
    group: str | None = None
    peer: int | None = None
    any_process: bool = False


class Leave(NamedTuple):
    """A member leaves: a given one, or any, if enough members remain. Where groups overlap, a process leaves
    a given one, or all."""

    time: int
    peer: int | None
    if_enough: bool = False
    group: str | None = None


class Remove(NamedTuple):
    """A member is removed, by a given member or by the first. Where groups overlap, it is removed from a
    given one, or from all."""

    time: int
    peer: int
    by: int | None = None
    group: str | None = None


class RandomCrash(NamedTuple):
    """Any member crashes for good."""

    time: int


class Attach(NamedTuple):
    """A phone asks a super peer for admission: a given one, or any."""

    time: int
    hub: int | None = None


class Detach(NamedTuple):
    """A phone leaves: a given one, or any."""

    time: int
    phone: int | None = None


class Move(NamedTuple):
    """A phone moves from its super peer to another: to a given one, or to any."""

    time: int
    phone: int | None = None
    hub: int | None = None


class Phones(NamedTuple):
    """This many phones are admitted at the start, each by any super peer."""

    number: int


class RandomPhones(NamedTuple):
    """A Poisson process of phones that join, leave and move, a third of each."""

    rate: float


class RandomChanges(NamedTuple):
    """A Poisson process of joins and departures, half of each; a share of the departures are crashes."""

    rate: float
    crashes: float


Fault = Crash | Suspicion | Partition
PhoneChange = Attach | Detach | Move
Change = Fault | Join | Leave | Remove | RandomCrash | PhoneChange
Churn = Join | Leave | Remove | RandomChanges | PhoneChange | Phones | RandomPhones
"""The types of entries in a scenario's `churn`."""

_FAULTS = "crash:1s:3, crash:1-2s:3 (with a restart), suspect:1-2s:3, partition:1-2s:0,1,2"
_CHURN = "join:1s, leave:1s:3, remove:1s:3, poisson:2 (changes a second), poisson:2:10% (of departures crash)"
_OVERLAPPING = "join:1s:a (group a), join:1s:a:3 (process 3), leave:1s:3:a, remove:1s:3:a"
_PHONES = (
    "phones:5 (at the start), attach:1s:2 (at super peer 2), detach:1s:7, move:1s:7:2, roam:2 (a second)"
)


def is_group_fault(text: str) -> bool:
    """Whether a fault affects processes or a part of the group; other faults affect single packets."""
    return text.partition(":")[0] in ("crash", "suspect", "partition")


def parse_group_fault(text: str) -> Fault:
    """Parse a fault of processes.

    >>> parse_group_fault("crash:1s:3"), parse_group_fault("partition:1-2s:0-1,5")
    (Crash(time=1000000000, peer=3, restart=None), Partition(time=1000000000, end=2000000000, peers=frozenset({0, 1, 5})))
    """  # noqa: E501
    match text.split(":"):
        case ["crash", when, peer] if "-" in when:
            start, end = parse_range(when)
            return Crash(start, _peer(peer), end)
        case ["crash", when, peer]:
            return Crash(parse_duration(when), _peer(peer))
        case ["suspect", when, peer]:
            return Suspicion(*parse_range(when), _peer(peer))
        case ["suspect", when, peer, by]:
            return Suspicion(*parse_range(when), _peer(peer), _peer(by))
        case ["partition", when, peers]:
            return Partition(*parse_range(when), _peers(peers))
    raise InputError(f"'{text}' is not a fault of processes; write {_FAULTS}")


def parse_churn(text: str) -> Churn:
    """Parse a change that members make, or a process of random ones.

    >>> parse_churn("poisson:2:10%")
    RandomChanges(rate=2.0, crashes=0.1)
    """
    match text.split(":"):
        case ["join", when]:
            return Join(parse_duration(when))
        case ["join", when, contact] if _is_number(contact) or not contact:
            return Join(parse_duration(when), _peer(contact))
        case ["join", when, group]:
            return Join(parse_duration(when), group=group)
        case ["join", when, group, peer]:
            return Join(parse_duration(when), group=group, peer=_peer(peer))
        case ["leave", when, peer]:
            return Leave(parse_duration(when), _peer(peer))
        case ["leave", when, peer, group]:
            return Leave(parse_duration(when), _peer(peer), group=group)
        case ["remove", when, peer]:
            return Remove(parse_duration(when), _peer(peer))
        case ["remove", when, peer, by] if _is_number(by) or not by:
            return Remove(parse_duration(when), _peer(peer), _peer(by))
        case ["remove", when, peer, group]:
            return Remove(parse_duration(when), _peer(peer), group=group)
        case ["poisson", rate]:
            return RandomChanges(_rate(rate), 0.0)
        case ["poisson", rate, crashes]:
            return RandomChanges(_rate(rate), parse_share(crashes))
        case _ if (change := _parse_phones(text)) is not None:
            return change
    raise InputError(
        f"'{text}' is not a change of a group; write {_CHURN}; in groups that overlap "
        f"{_OVERLAPPING}; for phones {_PHONES}"
    )


def _parse_phones(text: str) -> PhoneChange | Phones | RandomPhones | None:
    match text.split(":"):
        case ["phones", count]:
            return Phones(_peer(count))
        case ["attach", when]:
            return Attach(parse_duration(when))
        case ["attach", when, hub]:
            return Attach(parse_duration(when), _peer(hub))
        case ["detach", when, phone]:
            return Detach(parse_duration(when), _peer(phone))
        case ["move", when, phone]:
            return Move(parse_duration(when), _peer(phone))
        case ["move", when, phone, hub]:
            return Move(parse_duration(when), _peer(phone), _peer(hub))
        case ["roam", rate]:
            return RandomPhones(_rate(rate))
    return None


def _is_number(text: str) -> bool:
    return text.strip().isdecimal()


def _peer(text: str) -> int:
    if not _is_number(text) or len(text) > 9:
        raise InputError(f"'{text}' is not a process; they are numbered from 0")
    return int(text)


def _peers(text: str) -> frozenset[int]:
    """Processes as `0,1,5` or `0-3`."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        last = _peer(high) if dash else _peer(low)
        if last - _peer(low) > 1_000_000:
            raise InputError(f"'{text}' are too many processes")
        found.update(range(_peer(low), last + 1))
    return frozenset(found)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1e6:
        raise InputError(f"'{text}' is not a rate; write the changes a second, from 0 to 1e6")
    return rate


def plan(faults: Sequence[str], churn: Sequence[str], seed: int, until: int) -> list[Change]:
    """All changes of a run, in the order of their times."""
    found: list[Change] = [parse_group_fault(text) for text in faults if is_group_fault(text)]
    for number, text in enumerate(churn):
        change = parse_churn(text)
        if isinstance(change, RandomChanges | RandomPhones):
            found += _random_changes(change, counter_rng.key(seed, counter_rng.CHURN, number), until)
        elif isinstance(change, Phones):
            found += [Attach(0)] * change.number
        else:
            found.append(change)
    return sorted(found, key=lambda change: change.time)


def _random_changes(churn: RandomChanges | RandomPhones, key: int, until: int) -> list[Change]:
    changes: list[Change] = []
    time, number = 0, 0
    while churn.rate:
        bits = counter_rng.draw(key, number)
        time += counter_rng.exponential(bits, max(1, round(SECOND / churn.rate)))
        if time >= until:
            break
        choice = counter_rng.unit(counter_rng.mix(bits + 1))
        if isinstance(churn, RandomPhones):
            changes.append((Attach, Detach, Move)[int(choice * 3)](time))
        elif choice < 0.5:
            changes.append(Join(time, any_process=choice < 0.25))
        else:
            crashes = choice < 0.5 + churn.crashes / 2
            changes.append(RandomCrash(time) if crashes else Leave(time, None, if_enough=True))
        number += 1
    return changes


def is_of_phones(change: Change | Churn) -> bool:
    """Whether only a group with phones can make this change."""
    return isinstance(change, PhoneChange | Phones | RandomPhones)


def highest_peer(change: Change | Churn) -> int:
    """The highest number of a process that a change names; -1 if it names none."""
    if isinstance(change, Partition):
        return max(change.peers)
    return max(getattr(change, name, None) or -1 for name in ("peer", "by", "contact", "phone", "hub"))
