"""Whether a changing group can complete removals, as decided by an observer that knows all of its members."""

from __future__ import annotations

from antecede.check.changing.world import ChangingWorld
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Stream


def has_quorum(
    world: ChangingWorld, removing: frozenset[Stream] = frozenset(), leaving: frozenset[Stream] = frozenset()
) -> bool:
    """Whether some members outnumber the removals that any of them has not forgotten, once the removed ones
    are gone and leave. These members must know each other for good, so what others know does not matter."""
    removed = world.removed | removing
    staying = {
        each.stream: each
        for each in world.members
        if world.is_active(each.me) and each.stream not in removed and each.stream not in leaving
    }
    present = [each for each in world.members if world.is_active(each.me) and each.stream in each.addresses]
    return any(_is_quorum(each, staying, removed, present) for each in staying.values())


def _is_quorum(
    member: ChangingMember,
    staying: dict[Stream, ChangingMember],
    removed: set[Stream],
    present: list[ChangingMember],
) -> bool:
    known = {
        stream: other
        for stream, other in staying.items()
        if stream in member.addresses
        and stream not in member.unstable_admissions
        and member.stream in other.addresses
    }
    pending: set[Stream] = set()
    for each in (member, *known.values()):
        pending |= each.removals.removed | (removed & each.addresses.keys())
    # A member that has removed all of them hears nothing from them, and waits for a quorum of its own, even
    # if they have removed it too.
    is_heard = all(each.addresses.keys() & known.keys() for each in present)
    return is_heard and len(known) > len(pending)
